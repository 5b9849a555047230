#pragma once
// Tensors, shapes and ports between C and C++.

#include <span>
#include <vector>

#include "lenslet/lenslet.h"
#include "lenslet/model.h"
#include "lenslet/runner.h"

namespace lenslet::c_api {

/// Error(invalid_argument) for a rank that there is not, or a negative dimension; `name` in messages.
Shape shape_of(const std::int64_t* dims, std::int32_t rank, const char* name);

/// `count` tensors in place of `to`. With `optional`, one without data becomes empty(). Error(invalid_argument) when
/// dtype, shape, bytes or memory make no sense.
void take_tensors(const lenslet_tensor* given, std::size_t count, bool optional, const char* name,
                  std::vector<IoTensor>& to);

/// A copy, which may be read at any time. Error(invalid_argument) as above, and for what lies on a CUDA device.
Tensor host_copy(const lenslet_tensor& given, const char* name);

/// On the host; of an empty() one, no data and rank -1.
lenslet_tensor as_c(const Tensor& tensor);

/// Names stay `port`'s.
lenslet_port as_c(const PortInfo& port);

}  // namespace lenslet::c_api
