#pragma once
// The processors of this machine, and whether this build can use them.

#include <cstdint>
#include <string>
#include <vector>

#include "lenslet/export.h"

namespace lenslet {

struct DeviceInfo {
  std::string id;                  ///< as PlanOptions::device spells it: "cpu", "cuda:0"
  std::string name;                ///< the vendor's name; empty when unknown
  std::string architecture;        ///< CPU: the instruction set kernels are chosen for ("AVX2"); CUDA: "sm_90"
  int cores = 0;                   ///< CPU: cores this process may use; CUDA: multiprocessors
  std::uint64_t memory_bytes = 0;  ///< of the machine, or of the card
  bool usable = false;             ///< our kernels run on it
  std::string reason;              ///< why not, in words; empty when usable
  /// A one-line note if this build has no machine code for the device, else empty. The driver then compiles each kernel
  /// at first use, mostly while the first Runner is made: 10 to 20 s in all, unless the driver's cache already has
  /// them, which is not known here.
  std::string note;
};

/// CUDA on this machine as a whole.
struct CudaInfo {
  bool built = false;    ///< this build includes CUDA
  std::string runtime;   ///< version of the CUDA runtime built in, "13.0"; empty when not built
  std::string driver;    ///< newest CUDA version the driver supports, "13.0"; empty without a driver
  std::string compiled;  ///< architectures built for, "90a-real 80-virtual"; empty when not built
  std::string reason;    ///< why there is no usable CUDA device; empty when there is one
};

struct DeviceReport {
  std::vector<DeviceInfo> devices;  ///< the CPU first, then CUDA devices in the driver's order
  CudaInfo cuda;
};

/// Queries all devices now. A missing driver or failing device is reported, not thrown. Creates a context on every CUDA
/// device (a fraction of a second each); the calling thread's current device does not change.
LENSLET_API DeviceReport query_devices();

/// The CPU alone; queries no CUDA device.
LENSLET_API DeviceInfo query_cpu();

/// Limits CPU kernels to this instruction set for the whole process, for measurements and tests. Spelled as in
/// DeviceInfo::architecture ("AVX2", "SSE4"; "AVX-512"). Call it before the first Model is loaded: plans and packed
/// weights depend on it. Error(invalid_argument) lists those of this machine.
LENSLET_API void limit_instruction_set(const std::string& name);

/// A device name resolved on this machine.
struct DeviceChoice {
  std::string id = "cpu";   ///< "cpu" or "cuda:0"
  int cuda_index = -1;      ///< -1: the CPU
  int multiprocessors = 0;  ///< of the CUDA device
  std::string name;         ///< the vendor's name of the CUDA device; empty for the CPU
  /// One line for the user, mostly empty: why "auto" fell back to the CPU (only in builds with CUDA), or
  /// DeviceInfo::note of the device.
  std::string note;
  bool is_cuda() const { return cuda_index >= 0; }
};

/// "cpu"; "cuda:1"; "cuda" is "cuda:0"; "auto" is "cuda:0" where that is usable, else "cpu". Queries only the device
/// named, once per process (the first query creates its context), and none for "cpu". Error(invalid_argument): any
/// other name, "" included. Error(device): the CUDA device cannot be used, with the reason: a build without CUDA, no
/// driver, no such device, or no code for its architecture.
LENSLET_API DeviceChoice choose_device(const std::string& name);

}  // namespace lenslet
