#pragma once
// Marks what the shared library exports; everything else in it is hidden.

#if defined(__GNUC__)
#define LENSLET_API __attribute__((visibility("default")))
#else
#define LENSLET_API
#endif
