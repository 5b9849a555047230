#pragma once
// The version of these headers. CMake's project version is read from here.

#define LENSLET_VERSION "0.1.0"
#define LENSLET_VERSION_MAJOR 0
#define LENSLET_VERSION_MINOR 1
#define LENSLET_VERSION_PATCH 0
