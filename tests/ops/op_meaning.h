#pragma once
// Compares an operator's declarations (ops/core/op.h) with its results.

#include <memory>
#include <string>

#include "tests/ops/op_harness.h"

namespace lenslet::test {

/// The operator's maker must refuse an unknown attribute. Fails the current check otherwise.
void check_unknown_attribute(const OpCase& c, const std::string& where);

/// Normalised attributes must make the same operator: attributes, types and bits. Fails the current check otherwise.
void check_round_trip(const OpCase& c, const std::shared_ptr<const Op>& op, const std::string& where);

/// Changes elements of float inputs one at a time: outputs may change only where axis_map() allows. Fails the current
/// check otherwise.
void check_axis_map(const OpCase& c, const std::shared_ptr<const Op>& op, const std::string& where);

/// permuted() must give the results for inputs with permuted axes, also for elementwise operators: at every rank, with
/// constant and computed weights. Fails the current check otherwise.
void check_permuted(const OpCase& c, const std::shared_ptr<const Op>& op, const std::string& where);

/// as_activation() and as_channel_affine() must describe the result if all other inputs are constant. Fails the current
/// check otherwise.
void check_formulas(const OpCase& c, const std::shared_ptr<const Op>& op, const std::string& where);

/// Output 0 must have the bytes of the input that alias_input() names, and equal input 0 if gives_input_back() says so.
/// Fails the current check otherwise.
void check_copies(const OpCase& c, const std::shared_ptr<const Op>& op, const std::string& where);

}  // namespace lenslet::test
