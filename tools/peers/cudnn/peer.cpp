#include "tools/peers/cudnn/peer.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/cuda/upload.h"
#include "lenslet/error.h"
#include "oracle/draw.h"
#include "tools/measuring/replays.h"

namespace lenslet::bench {
namespace {

constexpr std::size_t workspace_bytes = std::size_t{2} << 30;

void check(cudnnStatus_t status, std::string_view what) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw Error(ErrorKind::device, fmt::format("{}: {}", what, cudnnGetErrorString(status)));
}
#define CUDNN_CHECK(call) check((call), #call)

template <typename Handle, cudnnStatus_t (*create)(Handle*), cudnnStatus_t (*destroy)(Handle)>
struct Descriptor {
  Handle handle = nullptr;
  Descriptor() { check(create(&handle), "a cuDNN descriptor"); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { destroy(handle); }
  operator Handle() const { return handle; }
};
using TensorDescriptor = Descriptor<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>;
using FilterDescriptor = Descriptor<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor>;
using ConvDescriptor =
    Descriptor<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor>;
using ActivationDescriptor =
    Descriptor<cudnnActivationDescriptor_t, cudnnCreateActivationDescriptor, cudnnDestroyActivationDescriptor>;

std::string_view name_of(cudnnConvolutionFwdAlgo_t algorithm) {
  switch (algorithm) {
    case CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM:
      return "implicit_gemm";
    case CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM:
      return "implicit_precomp_gemm";
    case CUDNN_CONVOLUTION_FWD_ALGO_GEMM:
      return "gemm";
    case CUDNN_CONVOLUTION_FWD_ALGO_DIRECT:
      return "direct";
    case CUDNN_CONVOLUTION_FWD_ALGO_FFT:
      return "fft";
    case CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING:
      return "fft_tiling";
    case CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD:
      return "winograd";
    case CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED:
      return "winograd_nonfused";
    default:
      return "unknown";
  }
}

cuda::DeviceBuffer<std::byte> drawn(std::int64_t elems, DType type) {
  Tensor host(type, {elems});
  oracle::FastEngine engine(1);
  oracle::draw(host, engine);
  return cuda::upload(std::span(static_cast<const std::byte*>(host.data()), host.bytes()));
}

int to_int(std::int64_t value) { return static_cast<int>(value); }

}  // namespace

Peer::Peer(const cuda::Stream& stream) : stream_(stream), workspace_(workspace_bytes) {
  CUDNN_CHECK(cudnnCreate(&cudnn_));
  CUDNN_CHECK(cudnnSetStream(cudnn_, stream.get()));
}

Peer::~Peer() { cudnnDestroy(cudnn_); }

template <typename Call>
double Peer::replay_us(const ConvProblem& problem, double seconds, const Call& call) {
  const int calls = tool::calls_a_graph(problem.flops());
  call();
  stream_.synchronize();
  cuda::GraphRecorder recorder;
  recorder.capture(stream_, [&] {
    for (int i = 0; i < calls; ++i) call();
  });
  return tool::time_replays(recorder, calls, stream_, seconds).median;
}

void Peer::time_layout(const ConvProblem& p, Arithmetic arithmetic, cudnnTensorFormat_t format, double seconds,
                       PeerTime& best) {
  const DType storage = arithmetic == Arithmetic::fp16   ? DType::f16
                        : arithmetic == Arithmetic::bf16 ? DType::bf16
                                                         : DType::f32;
  const cudnnDataType_t type = storage == DType::f16    ? CUDNN_DATA_HALF
                               : storage == DType::bf16 ? CUDNN_DATA_BFLOAT16
                                                        : CUDNN_DATA_FLOAT;
  const TensorDescriptor x_type, y_type, bias_type;
  const FilterDescriptor w_type;
  const ConvDescriptor conv;
  const ActivationDescriptor relu;
  CUDNN_CHECK(cudnnSetTensor4dDescriptor(x_type, format, type, to_int(p.n), to_int(p.c), to_int(p.h), to_int(p.w)));
  CUDNN_CHECK(cudnnSetTensor4dDescriptor(y_type, format, type, to_int(p.n), to_int(p.k), to_int(p.p), to_int(p.q)));
  CUDNN_CHECK(cudnnSetTensor4dDescriptor(bias_type, format, type, 1, to_int(p.k), 1, 1));
  CUDNN_CHECK(
      cudnnSetFilter4dDescriptor(w_type, type, format, to_int(p.k), to_int(p.group_c()), to_int(p.r), to_int(p.s)));
  CUDNN_CHECK(cudnnSetConvolution2dDescriptor(conv, to_int(p.pad_top), to_int(p.pad_left), to_int(p.stride_h),
                                              to_int(p.stride_w), to_int(p.dilation_h), to_int(p.dilation_w),
                                              CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  CUDNN_CHECK(cudnnSetConvolutionGroupCount(conv, to_int(p.groups)));
  // FMA_MATH forbids tensor cores, TF32 among them; DEFAULT_MATH allows TF32 for fp32 operands.
  CUDNN_CHECK(cudnnSetConvolutionMathType(conv, arithmetic == Arithmetic::fp32   ? CUDNN_FMA_MATH
                                                : arithmetic == Arithmetic::tf32 ? CUDNN_DEFAULT_MATH
                                                                                 : CUDNN_TENSOR_OP_MATH));
  CUDNN_CHECK(cudnnSetActivationDescriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0));

  const auto x = drawn(p.n * p.c * p.h * p.w, storage), w = drawn(p.k * p.group_c() * p.r * p.s, storage);
  const auto bias = drawn(p.k, storage);
  cuda::DeviceBuffer<std::byte> y(static_cast<std::size_t>(p.n * p.k * p.p * p.q) * dtype_bytes(storage));
  CUDA_CHECK(cudaDeviceSynchronize());
  std::array<cudnnConvolutionFwdAlgoPerf_t, CUDNN_CONVOLUTION_FWD_ALGO_COUNT> found{};
  int count = 0;
  const cudnnStatus_t search = cudnnFindConvolutionForwardAlgorithmEx(
      cudnn_, x_type, x.data(), w_type, w.data(), conv, y_type, y.data(), static_cast<int>(found.size()), &count,
      found.data(), workspace_.data(), workspace_.bytes());
  if (search == CUDNN_STATUS_NOT_SUPPORTED) return;
  check(search, "cudnnFindConvolutionForwardAlgorithmEx");

  const float one = 1, zero = 0;
  int timed = 0;
  for (int i = 0; i < count && timed < 3; ++i) {  // fastest first
    const cudnnConvolutionFwdAlgoPerf_t& candidate = found[static_cast<std::size_t>(i)];
    if (candidate.status != CUDNN_STATUS_SUCCESS || candidate.memory > workspace_.bytes()) continue;
    // The search also reports algorithms under arithmetic that was not asked for; in fp32 the descriptor keeps
    // FMA_MATH, under which those refuse.
    if (arithmetic != Arithmetic::fp32) CUDNN_CHECK(cudnnSetConvolutionMathType(conv, candidate.mathType));
    const auto forward = [&] {
      return cudnnConvolutionForward(cudnn_, &one, x_type, x.data(), w_type, w.data(), conv, candidate.algo,
                                     workspace_.data(), workspace_.bytes(), &zero, y_type, y.data());
    };
    if (forward() != CUDNN_STATUS_SUCCESS) continue;
    ++timed;
    const double conv_us = replay_us(p, seconds, [&] { check(forward(), "cudnnConvolutionForward"); });
    const auto fused = [&] {
      return cudnnConvolutionBiasActivationForward(cudnn_, &one, x_type, x.data(), w_type, w.data(), conv,
                                                   candidate.algo, workspace_.data(), workspace_.bytes(), &zero, y_type,
                                                   y.data(), bias_type, bias.data(), relu, y_type, y.data());
    };
    double fused_us = 0;
    if (fused() == CUDNN_STATUS_SUCCESS)
      fused_us = replay_us(p, seconds, [&] { check(fused(), "cudnnConvolutionBiasActivationForward"); });
    if (best.conv_us == 0 || conv_us < best.conv_us) {
      best.conv_us = conv_us;
      best.what = fmt::format("{} {}", format == CUDNN_TENSOR_NCHW ? "NCHW" : "NHWC", name_of(candidate.algo));
    }
    if (fused_us > 0 && (best.fused_us == 0 || fused_us < best.fused_us)) best.fused_us = fused_us;
  }
}

PeerTime Peer::best(const ConvProblem& problem, Arithmetic arithmetic, double seconds) {
  PeerTime best;
  for (const cudnnTensorFormat_t format : {CUDNN_TENSOR_NCHW, CUDNN_TENSOR_NHWC})
    time_layout(problem, arithmetic, format, seconds, best);
  return best;
}

}  // namespace lenslet::bench
