#pragma once
// The attributes of a PoolGeometry.

#include "lenslet/attributes.h"
#include "ops/core/attribute_reader.h"
#include "ops/pool/pool.h"

namespace lenslet {

/// Reads all but `norm` and `column_major`. Error(invalid_model) without a kernel_shape.
PoolGeometry read_pool_geometry(AttributeReader& reader);
/// The reverse, without empty lists.
void append_geometry(AttributeList& list, const PoolGeometry& geometry);

}  // namespace lenslet
