#pragma once
// A run of a network as a file for Perfetto (ui.perfetto.dev) and chrome://tracing.

#include <filesystem>
#include <span>

#include "tools/verbs/layer_table.h"

namespace lenslet::tool {

/// Writes JSON in the Trace Event Format: the layers in sequence, each as long as its median, with its properties as
/// arguments. Error(io) if it cannot be written; no partial file remains.
void write_trace(const std::filesystem::path& file, const std::string& model, const std::string& device,
                 std::span<const LayerRow> rows);

}  // namespace lenslet::tool
