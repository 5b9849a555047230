#pragma once
// Conversion of tensors, shapes and ports between C and C++.

#include <span>
#include <vector>

#include "lenslet/lenslet.h"
#include "lenslet/model.h"
#include "lenslet/runner.h"

namespace lenslet::c_api {

/// Error(invalid_argument) for an invalid rank or a negative dimension; `name` is used in messages.
Shape shape_of(const std::int64_t* dims, std::int32_t rank, const char* name);

/// Replaces `to` with `count` tensors. With `optional`, one without data becomes empty(). Error(invalid_argument) for
/// an invalid dtype, shape, size or memory kind.
void take_tensors(const lenslet_tensor* given, std::size_t count, bool optional, const char* name,
                  std::vector<IoTensor>& to);

/// An owning copy. Error(invalid_argument) as above, and for CUDA memory.
Tensor host_copy(const lenslet_tensor& given, const char* name);

/// A host tensor; for an empty() one, no data and rank -1.
lenslet_tensor as_c(const Tensor& tensor);

/// Names still point into `port`.
lenslet_port as_c(const PortInfo& port);

}  // namespace lenslet::c_api
