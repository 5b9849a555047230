#pragma once
// A device with a stream of its own: what a Runner, a test or a benchmark works with.

#include <memory>

#include "base/cuda/context.h"
#include "base/cuda/cublas.h"
#include "base/cuda/stream.h"

namespace lenslet::cuda {

/// Makes `device` current for the calling thread, and puts the thread's device back at the end.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice();

 private:
  int previous_ = 0;
};

class Session {
 public:
  /// On an existing, usable device, which must be current; with a Cublas where that is asked for. Error(device) when a
  /// call fails or cuBLAS cannot be had.
  explicit Session(int device, bool with_cublas = false);
  const Context& context() const noexcept { return context_; }
  const Stream& stream() const noexcept { return stream_; }
  bool has_cublas() const noexcept { return cublas_ != nullptr; }
  /// work(context), whose launches and products go into `recorder` in place of the stream.
  template <typename Work>
  void record(GraphRecorder& recorder, const Work& work) {
    Context context = context_;
    context.recorder = &recorder;
    const ProductsInto products(cublas_.get(), recorder);
    work(context);
  }

 private:
  // As long as it lives.
  class ProductsInto {
   public:
    ProductsInto(Cublas* cublas, GraphRecorder& recorder) : cublas_(cublas) {
      if (cublas_ != nullptr) cublas_->record_to(&recorder);
    }
    ProductsInto(const ProductsInto&) = delete;
    ProductsInto& operator=(const ProductsInto&) = delete;
    ~ProductsInto() {
      if (cublas_ != nullptr) cublas_->record_to(nullptr);
    }

   private:
    Cublas* cublas_;
  };

  Stream stream_;
  std::unique_ptr<Cublas> cublas_;
  Context context_;
};

}  // namespace lenslet::cuda
