#include "tools/measuring/conv_in_caches.h"

#include "tools/measuring/conv_data.h"
#include "tools/measuring/parse_conv.h"

namespace lenslet::tool {

std::optional<double> conv_us_in_caches(KernelTimer& timer, const std::string& problem, const std::string& algorithm,
                                        const std::string& config, double seconds) try {
  const PosedConv conv(parse_conv(problem));
  Choice choice = choose_kernel(*conv.node, {timer.device(), Numerics()}, problem, algorithm);
  choice.candidate.config = config;
  return timer.measure(*choice.kernel, *conv.node, choice.candidate, conv.inputs, seconds).us.p10;
} catch (const Error&) {
  return {};
}

}  // namespace lenslet::tool
