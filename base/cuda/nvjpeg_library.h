#pragma once
// libnvjpeg, opened at run time (run_time_library.h). Toolkits have its header in a package of its own, so what is used
// of it is written out; it is the same in CUDA 12 and 13.

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

namespace lenslet::cuda {

struct NvjpegLibrary {
  using Handle = struct nvjpegHandle*;
  using State = struct nvjpegJpegState*;
  using Header = struct nvjpegJpegStream*;  ///< a parsed file (nvjpegJpegStream_t); no CUDA stream
  enum Status { success = 0 };              // nvjpegStatus_t
  enum Backend { gpu_hybrid = 2, hardware = 3 };
  enum OutputFormat { rgb_interleaved = 5 };
  struct Image {  // nvjpegImage_t
    unsigned char* channel[4];
    std::size_t pitch[4];
  };
  enum Property { major, minor, patch };  // libraryPropertyType

  int (*get_property)(Property, int* value) = nullptr;
  int (*create)(Backend, void* device_allocator, void* pinned_allocator, unsigned flags, Handle*) = nullptr;
  int (*destroy)(Handle) = nullptr;
  int (*hardware_info)(Handle, unsigned* engines, unsigned* cores_of_each) = nullptr;
  int (*create_state)(Handle, State*) = nullptr;
  int (*destroy_state)(State) = nullptr;
  int (*create_header)(Handle, Header*) = nullptr;
  int (*destroy_header)(Header) = nullptr;
  int (*parse_header)(Handle, const unsigned char* file, std::size_t bytes, Header) = nullptr;
  int (*frame_size)(Header, unsigned* width, unsigned* height) = nullptr;
  int (*is_supported)(Handle, Header, int* no) = nullptr;  ///< by decode(); 0: yes
  int (*initialize)(Handle, State, int batch, int host_threads, OutputFormat) = nullptr;
  int (*decode)(Handle, State, const unsigned char* const* files, const std::size_t* bytes, Image*,
                cudaStream_t) = nullptr;

  std::string path;    ///< what was opened: a bare soname, or a file
  std::string reason;  ///< why there is none; empty when there is
};

/// As open_library(): from a file or folder, or where CUDA's libraries usually are if `named` is empty.
NvjpegLibrary load_nvjpeg(const std::string& named);

/// The process-wide library, loaded at the first call; LENSLET_NVJPEG in the environment names it. Thread-safe.
const NvjpegLibrary& nvjpeg_library();

}  // namespace lenslet::cuda
