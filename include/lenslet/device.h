#pragma once
// Which processors this machine has, and whether this build can use them.

#include <cstdint>
#include <string>
#include <vector>

#include "lenslet/export.h"

namespace lenslet {

struct DeviceInfo {
  std::string id;                  ///< as PlanOptions::device spells it: "cpu", "cuda:0"
  std::string name;                ///< as the maker calls it; empty when unknown
  std::string architecture;        ///< CPU: the instruction set kernels are chosen for ("AVX2"); CUDA: "sm_90"
  int cores = 0;                   ///< CPU: cores this process may use; CUDA: multiprocessors
  std::uint64_t memory_bytes = 0;  ///< of the machine, or of the card
  bool usable = false;             ///< our kernels run on it
  std::string reason;              ///< why not, in words; empty when usable
  /// One line when CUDA starts slowly: this build has no machine code for the device, so that its driver compiles each
  /// kernel when it is first used, mostly while the first Runner is made: 10 to 20 s in all. Empty otherwise. Known
  /// before anything is compiled; whether the driver's cache has the kernels already is not.
  std::string note;
};

/// What is known of CUDA on this machine as a whole.
struct CudaInfo {
  bool built = false;    ///< this build has the CUDA half
  std::string runtime;   ///< version of the CUDA runtime built in, "13.0"; empty when not built
  std::string driver;    ///< newest CUDA version the driver supports, "13.0"; empty without a driver
  std::string compiled;  ///< architectures built for, "90a-real 80-virtual"; empty when not built
  std::string reason;    ///< why there is no usable CUDA device; empty when there is one
};

struct DeviceReport {
  std::vector<DeviceInfo> devices;  ///< the CPU first, then CUDA devices in the driver's order
  CudaInfo cuda;
};

/// Looks now; a missing driver or a device that fails is reported, not thrown. Makes a context on every CUDA device (a
/// fraction of a second each) and leaves the calling thread's current device as it was.
LENSLET_API DeviceReport query_devices();

/// The first of these alone: no CUDA device is looked at.
LENSLET_API DeviceInfo query_cpu();

/// CPU kernels use no better instruction set than this from now on, in the whole process: to measure and to test. As
/// DeviceInfo::architecture spells it ("AVX2", "SSE4"; "AVX-512"). To be called before the first Model is loaded: plans
/// and prepared weights belong to an instruction set. Error(invalid_argument) says which there are on this machine.
LENSLET_API void limit_instruction_set(const std::string& name);

/// What a device name stands for on this machine.
struct DeviceChoice {
  std::string id = "cpu";   ///< "cpu" or "cuda:0"
  int cuda_index = -1;      ///< -1: the CPU
  int multiprocessors = 0;  ///< of the CUDA device
  std::string name;         ///< of the CUDA device, as the maker calls it; empty for the CPU
  /// One line for the user: that "auto" fell back to the CPU, and why (not in builds without the CUDA half, which have
  /// nothing to fall back from), or DeviceInfo::note of the device. Mostly empty.
  std::string note;
  bool is_cuda() const { return cuda_index >= 0; }
};

/// "cpu"; "cuda:1"; "cuda" is "cuda:0"; "auto" is "cuda:0" where that is usable, else "cpu". Looks at no device but the
/// one named, once in a process (the first look makes its context); at none for "cpu". Error(invalid_argument) for
/// another name, "" among them; Error(device) when a CUDA device is named that cannot be used, with the reason: no CUDA
/// half in this build, no driver, no such device, or no code for its architecture.
LENSLET_API DeviceChoice choose_device(const std::string& name);

}  // namespace lenslet
