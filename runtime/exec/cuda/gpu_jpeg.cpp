#include "lenslet/gpu_jpeg.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <optional>
#include <type_traits>

#include "base/boundary.h"
#include "base/cuda/buffer.h"
#include "base/cuda/nvjpeg_library.h"
#include "base/cuda/session.h"
#include "base/cuda/stream.h"
#include "lenslet/device.h"
#include "lenslet/error.h"

namespace lenslet {

using namespace cuda;

namespace {

const NvjpegLibrary& library() {
  const NvjpegLibrary& found = nvjpeg_library();
  if (!found.reason.empty()) throw Error(ErrorKind::unsupported, found.reason);
  return found;
}

int index_of(const std::string& device) {
  const DeviceChoice choice = choose_device(device);
  if (!choice.is_cuda())
    throw Error(ErrorKind::invalid_argument, fmt::format("JPEGs are decoded on CUDA devices, not on {}", device));
  return choice.cuda_index;
}

template <typename T>
struct Destroy {
  int (*call)(T*);
  void operator()(T* object) const {
    if (works_in_this_process()) call(object);
  }
};
template <typename Pointer>
using Owner = std::unique_ptr<std::remove_pointer_t<Pointer>, Destroy<std::remove_pointer_t<Pointer>>>;

/// What `create` returns through its last argument.
template <typename Pointer, typename Create>
Owner<Pointer> own(int (*destroy)(Pointer), const Create& create) {
  Pointer made = nullptr;
  create(&made);
  return Owner<Pointer>(made, {destroy});
}

void check(int status, const char* call) {
  if (status != NvjpegLibrary::success)
    throw Error(ErrorKind::device, fmt::format("nvJPEG: {} gives status {}", call, status));
}

}  // namespace

class GpuJpegDecoder::Work {
 public:
  explicit Work(const std::string& device) : device_(index_of(device)), nvjpeg_(library()) {
    const CurrentDevice current(device_);
    stream_.emplace();
    handle_ = own<NvjpegLibrary::Handle>(nvjpeg_.destroy, [this](NvjpegLibrary::Handle* made) { create(made); });
    state_ = own<NvjpegLibrary::State>(nvjpeg_.destroy_state, [this](NvjpegLibrary::State* made) {
      check(nvjpeg_.create_state(handle_.get(), made), "nvjpegJpegStateCreate");
    });
    header_ = own<NvjpegLibrary::Header>(nvjpeg_.destroy_header, [this](NvjpegLibrary::Header* made) {
      check(nvjpeg_.create_header(handle_.get(), made), "nvjpegJpegStreamCreate");
    });
    std::array<int, 3> version{};
    for (const auto part : {NvjpegLibrary::major, NvjpegLibrary::minor, NvjpegLibrary::patch})
      check(nvjpeg_.get_property(part, &version[part]), "nvjpegGetProperty");
    description_ = fmt::format("nvJPEG {}.{}.{} on {} of {}", version[0], version[1], version[2],
                               engines_ > 0 ? fmt::format("{} JPEG engines", engines_) : "the multiprocessors", device);
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work() {
    try {
      const CurrentDevice current(device_);
      release();
    } catch (const Error&) {
      release();  // a device that failed cannot be made current; what can be freed is freed
    }
  }

  std::vector<ImageView> decode(std::span<const GpuJpeg> files) {
    const CurrentDevice current(device_);
    std::vector<ImageView> images(files.size());
    std::vector<std::size_t> taken;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (!takes(files[i])) continue;
      images[i] = {nullptr, files[i].height, files[i].width, 3, 0, true};
      taken.push_back(i);
      bytes += bytes_of(images[i]);
    }
    if (taken.empty()) return images;
    if (pixels_.bytes() < bytes) {
      pixels_ = {};
      pixels_ = DeviceBuffer<std::uint8_t>(bytes);
    }
    std::vector<const unsigned char*> from;
    std::vector<std::size_t> sizes;
    std::vector<NvjpegLibrary::Image> to;
    std::uint8_t* next = pixels_.data();
    for (const std::size_t i : taken) {
      images[i].pixels = next;
      from.push_back(reinterpret_cast<const unsigned char*>(files[i].file.data()));
      sizes.push_back(files[i].file.size());
      to.push_back({{next}, {static_cast<std::size_t>(images[i].pitch())}});
      next += bytes_of(images[i]);
    }
    if (!decode_into(from, sizes, to))
      for (const std::size_t i : taken) images[i] = {};
    return images;
  }

  const std::string& description() const { return description_; }

 private:
  /// Without JPEG engines the device's multiprocessors decode.
  void create(NvjpegLibrary::Handle* made) {
    if (nvjpeg_.create(NvjpegLibrary::hardware, nullptr, nullptr, 0, made) != NvjpegLibrary::success)
      return check(nvjpeg_.create(NvjpegLibrary::gpu_hybrid, nullptr, nullptr, 0, made), "nvjpegCreateEx");
    unsigned cores = 0;
    check(nvjpeg_.hardware_info(*made, &engines_, &cores), "nvjpegGetHardwareDecoderInfo");
  }

  void release() {
    header_.reset();
    state_.reset();
    handle_.reset();
    pixels_ = {};
    stream_.reset();
  }

  /// Aligned as cudaMalloc()'s memory is.
  static std::size_t bytes_of(const ImageView& image) {
    return (static_cast<std::size_t>(image.height * image.pitch()) + 255) / 256 * 256;
  }

  bool takes(const GpuJpeg& jpeg) {
    const auto* const file = reinterpret_cast<const unsigned char*>(jpeg.file.data());
    unsigned width = 0, height = 0;
    int refused = 1;
    return nvjpeg_.parse_header(handle_.get(), file, jpeg.file.size(), header_.get()) == NvjpegLibrary::success &&
           nvjpeg_.frame_size(header_.get(), &width, &height) == NvjpegLibrary::success && width == jpeg.width &&
           height == jpeg.height &&
           nvjpeg_.is_supported(handle_.get(), header_.get(), &refused) == NvjpegLibrary::success && refused == 0;
  }

  /// Whether nvJPEG decoded all of them. It refuses damaged files with any status; a device's failure shows in the
  /// wait.
  bool decode_into(const std::vector<const unsigned char*>& files, const std::vector<std::size_t>& sizes,
                   std::vector<NvjpegLibrary::Image>& images) {
    constexpr int host_threads = 1;
    if (initialized_ != files.size()) {
      initialized_ = 0;
      check(nvjpeg_.initialize(handle_.get(), state_.get(), static_cast<int>(files.size()), host_threads,
                               NvjpegLibrary::rgb_interleaved),
            "nvjpegDecodeBatchedInitialize");
      initialized_ = files.size();
    }
    const int status =
        nvjpeg_.decode(handle_.get(), state_.get(), files.data(), sizes.data(), images.data(), stream_->get());
    stream_->synchronize();
    if (status != NvjpegLibrary::success) initialized_ = 0;  // what the state holds now is not known
    return status == NvjpegLibrary::success;
  }

  const int device_;  // first: a device that cannot decode is named before a library that is missing
  const NvjpegLibrary& nvjpeg_;
  std::optional<Stream> stream_;
  Owner<NvjpegLibrary::Handle> handle_;
  Owner<NvjpegLibrary::State> state_;
  Owner<NvjpegLibrary::Header> header_;
  unsigned engines_ = 0;
  std::string description_;
  std::size_t initialized_ = 0;  // files of a batch; 0: none
  DeviceBuffer<std::uint8_t> pixels_;
};

GpuJpegDecoder::GpuJpegDecoder(const std::string& device)
    : work_(at_boundary([&] { return std::make_unique<Work>(device); })) {}
GpuJpegDecoder::~GpuJpegDecoder() = default;

std::vector<ImageView> GpuJpegDecoder::decode(std::span<const GpuJpeg> files) {
  return at_boundary([&] { return work_->decode(files); });
}
const std::string& GpuJpegDecoder::description() const { return work_->description(); }

}  // namespace lenslet
