#pragma once
// A device with a stream of its own, for a Runner, a test or a benchmark.

#include <memory>

#include "base/cuda/context.h"
#include "base/cuda/cublas.h"
#include "base/cuda/stream.h"

namespace lenslet::cuda {

/// Makes `device` current for the calling thread; the destructor restores the previous one.
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
  /// On an existing, usable device, which must be current; with a Cublas if asked for. Error(device) when a call fails
  /// or cuBLAS is unavailable.
  explicit Session(int device, bool with_cublas = false);
  const Context& context() const noexcept { return context_; }
  const Stream& stream() const noexcept { return stream_; }
  bool has_cublas() const noexcept { return cublas_ != nullptr; }
  /// Runs work(context) with launches and products recorded into `recorder` instead of the stream.
  template <typename Work>
  void record(GraphRecorder& recorder, const Work& work) {
    Context context = context_;
    context.recorder = &recorder;
    const ProductsInto products(cublas_.get(), recorder);
    work(context);
  }

 private:
  // Records for its lifetime.
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
