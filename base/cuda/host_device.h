#pragma once
// For what kernels compute that the host's tests compute, too.

#if defined(__CUDACC__)
#define LENSLET_HOST_DEVICE __host__ __device__
#else
#define LENSLET_HOST_DEVICE
#endif
