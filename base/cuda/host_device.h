#pragma once
// Marks functions that kernels and host tests share.

#if defined(__CUDACC__)
#define LENSLET_HOST_DEVICE __host__ __device__
#else
#define LENSLET_HOST_DEVICE
#endif
