// The operators of normalization.

#include "ops/core/never.h"
#include "ops/families.h"

namespace lenslet {

// Each in the file of its name; softmax.cpp has two, instance_norm.cpp group_norm, layer_norm.cpp rms_norm,
// normalize_axes.cpp lp_normalization and mean_variance_normalization.
OpParts batch_norm(), instance_norm(), group_norm(), layer_norm(), rms_norm(), lrn(), softmax(), hardmax(),
    lp_normalization(), mean_variance_normalization(), global_response_norm();

std::span<const OpRow> normalization_rows() {
  // name, domain, first version read, inputs min..max, outputs min..max, parts, notes
  static const OpRow rows[] = {
      {"BatchNormalization", "", 7, 5, 5, 1, 5, batch_norm(), "inference"},
      {"InstanceNormalization", "", 6, 3, 3, 1, 1, instance_norm()},
      {"GroupNormalization", "", 18, 3, 3, 1, 1, group_norm()},
      {"LayerNormalization", "", 1, 2, 3, 1, 3, layer_norm()},
      {"RMSNormalization", "", 23, 2, 2, 1, 1, rms_norm()},
      {"MeanVarianceNormalization", "", 9, 1, 1, 1, 1, mean_variance_normalization()},
      {"LpNormalization", "", 1, 1, 1, 1, 1, lp_normalization(), "p 1 and 2"},
      {"GlobalResponseNorm", own, never, 3, 3, 1, 1, global_response_norm(), "of ConvNeXt V2"},
      {"LRN", "", 1, 1, 1, 1, 1, lrn()},
      {"Softmax", "", 1, 1, 1, 1, 1, softmax(), "before opset 13 the dimensions from the axis on are one"},
      {"LogSoftmax", "", 1, 1, 1, 1, 1, softmax(), "as Softmax"},
      {"Hardmax", "", 1, 1, 1, 1, 1, hardmax(), "as Softmax"},
  };
  return rows;
}

}  // namespace lenslet
