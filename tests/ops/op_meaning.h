#pragma once
// What an operator says of itself (ops/core/op.h), held against what it computes.

#include <memory>
#include <string>

#include "tests/ops/op_harness.h"

namespace lenslet::test {

/// The operator's maker refuses an attribute that there is not. Fails the current check otherwise.
void check_unknown_attribute(const OpCase& c, const std::string& where);

/// Normalised attributes make the same operator again: attributes, types and bits. Fails the current check otherwise.
void check_round_trip(const OpCase& c, const std::shared_ptr<const Op>& op, const std::string& where);

/// Elements of float inputs are changed, one at a time: outputs change nowhere but where axis_map() says that they
/// follow. Fails the current check otherwise.
void check_axis_map(const OpCase& c, const std::shared_ptr<const Op>& op, const std::string& where);

/// What permuted() says, elementwise operators included, is what comes of inputs whose axes stand in another order: at
/// every rank, with weights known and not. Fails the current check otherwise.
void check_permuted(const OpCase& c, const std::shared_ptr<const Op>& op, const std::string& where);

/// as_activation() and as_channel_affine() say what the operator computes when everything else is known. Fails the
/// current check otherwise.
void check_formulas(const OpCase& c, const std::shared_ptr<const Op>& op, const std::string& where);

/// Output 0 holds the bytes of the input that alias_input() names, and is input 0 where gives_input_back() says so.
/// Fails the current check otherwise.
void check_copies(const OpCase& c, const std::shared_ptr<const Op>& op, const std::string& where);

}  // namespace lenslet::test
