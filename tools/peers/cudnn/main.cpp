// bench-cudnn: our convolutions beside cuDNN's best ones, same problems, same process, same way of timing.
// Each of ours is what the rule chooses, with bias and ReLU; cuDNN's is one graph of all three, or the convolution's
// graph and then one of bias and ReLU, whichever is faster.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "base/cuda/session.h"
#include "tools/measuring/conv_data.h"
#include "tools/measuring/conv_sets.h"
#include "tools/measuring/kernel_timer.h"
#include "tools/peers/cudnn/peer.h"

namespace lenslet::bench {
namespace {

struct Options {
  std::vector<std::string> problems, sets;
  std::vector<std::int64_t> batches{1};
  int device = 0;
  Numerics numerics;
  double seconds = 0.05;
  int drawn = 0;
  std::uint64_t seed = 1;
  bool all_algorithms = false;
};

struct Ours {
  std::string_view name;
  double us = 0;
};

/// Of those that the model has at less than twice of what the rule chooses, the fastest.
Ours fastest(tool::KernelTimer& timer, const tool::PosedConv& posed, const Choice& choice, const Ours& chosen,
             double seconds) {
  constexpr double hopeless = 2;
  Ours best = chosen;
  for (const Choice::Row& row : choice.rows) {
    if (!row.refusal.empty() || row.kernel == choice.kernel) continue;
    if (row.candidate.estimated_us > hopeless * choice.candidate.estimated_us) continue;
    const double us = timer.measure(*row.kernel, *posed.node, row.candidate, posed.inputs, seconds).us.median;
    if (us < best.us) best = {row.kernel->name(), us};
  }
  return best;
}

void compare(const Options& options) {
  std::vector<tool::NamedConv> problems;
  for (const std::string& text : options.problems) problems.push_back({text, parse_conv(text)});
  for (const std::string& set : options.sets)
    for (const tool::NamedConv& conv : tool::conv_set(set, options.batches)) problems.push_back(conv);
  for (const tool::NamedConv& conv : tool::drawn_convs(options.drawn, options.seed)) problems.push_back(conv);

  const cuda::CurrentDevice current(options.device);
  const cuda::Stream stream;
  Peer peer(stream);
  const auto timer = tool::cuda_timer(options.device, tool::Buffers::same);
  const std::size_t version = cudnnGetVersion();
  fmt::print("{}; cuDNN {}.{}.{}, best of NCHW and NHWC, microseconds by graph replays on the same buffers\n",
             to_string(options.numerics), version / 10000, version / 100 % 100, version % 100);
  fmt::print("{:<20} {:>4} {:<46} {:<20} {:>10} {:>10} {:>10} {:>7} {:>8}  {}\n", "layer", "N", "problem", "ours", "us",
             "cuDNN conv", "+bias+relu", "ours/it", "error", "cuDNN's");
  double logs = 0;
  int rows = 0;
  for (tool::NamedConv& conv : problems) {
    conv.problem.bias = true;
    conv.problem.activation.kind = Activation::Kind::relu;
    conv.problem.storage = conv.problem.x_storage = options.numerics.storage;
    const tool::PosedConv posed(conv.problem);
    const Choice ours = choose_kernel(*posed.node, {timer->device(), options.numerics}, conv.problem.str());
    const double us =
        timer->measure(*ours.kernel, *posed.node, ours.candidate, posed.inputs, options.seconds).us.median;
    const Ours chosen{ours.kernel->name(), us};
    const PeerTime theirs = peer.best(posed, options.numerics.multiply, options.seconds);
    const double ratio = theirs.us > 0 ? us / theirs.us : 0;
    if (ratio > 0) {
      logs += std::log(ratio);
      ++rows;
    }
    fmt::print("{:<20} {:>4} {:<46} {:<20} {:>10.2f} {:>10.2f} {:>10.2f} {:>7.2f} {:>8.1e}  {}", conv.name,
               conv.problem.n, conv.problem.str(), chosen.name, us, theirs.conv_us, theirs.us, ratio, theirs.error,
               theirs.what);
    if (options.all_algorithms) {
      const Ours best = fastest(*timer, posed, ours, chosen, options.seconds);
      fmt::print("  [{} estimated {:.2f}; fastest {} {:.2f}]", ours.candidate.config, ours.candidate.estimated_us,
                 best.name, best.us);
    }
    fmt::print("\n");
    std::fflush(stdout);
  }
  if (rows > 0)
    fmt::print("our time over cuDNN's in {}, geometric mean of {} problems: {:.3f}\n", to_string(options.numerics),
               rows, std::exp(logs / rows));
}

}  // namespace
}  // namespace lenslet::bench

int main(int argc, char** argv) {
  lenslet::bench::Options options;
  CLI::App app{"Our convolutions beside cuDNN's", "bench-cudnn"};
  app.add_option("--problem", options.problems, "N,C,H,W,K,R,S[,stride[,pad[,dilation[,groups]]]]");
  app.add_option("--set", options.sets, "Layers of networks; without problems, all that are known")->delimiter(',');
  app.add_option("--batch", options.batches, "Batch sizes of --set")->delimiter(',');
  app.add_option("--drawn", options.drawn, "So many problems drawn at random")->check(CLI::Range(0, 100000));
  app.add_option("--seed", options.seed, "Of --drawn");
  app.add_flag("--all-algorithms", options.all_algorithms, "Say which of ours is the fastest, too");
  app.add_option_function<std::string>(
         "--precision", [&](const std::string& name) { options.numerics = lenslet::parse_numerics(name); },
         "Arithmetic of both sides")
      ->check(CLI::IsMember({"fp32", "tf32", "fp16", "bf16"}));
  app.add_option("--device", options.device, "Index of the CUDA device");
  app.add_option("--seconds", options.seconds, "Time to spend on each measurement");
  CLI11_PARSE(app, argc, argv);
  if (options.problems.empty() && options.sets.empty() && options.drawn == 0)
    options.sets = {"resnet50", "vgg16", "mobilenet_v2", "squeezenet", "seeds"};
  try {
    lenslet::bench::compare(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench-cudnn: error: {}\n", error.what());
    return 1;
  }
  return 0;
}
