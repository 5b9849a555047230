#pragma once
// Marks what the shared library exports; everything else in it is hidden.

#if __cplusplus < 202002L
#error "lenslet's headers are C++20: compile with -std=c++20"
#endif

#if defined(__GNUC__)
#define LENSLET_API __attribute__((visibility("default")))
#else
#define LENSLET_API
#endif
