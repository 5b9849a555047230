#pragma once
// A run of a network as a file for Perfetto (ui.perfetto.dev) and chrome://tracing.

#include <filesystem>
#include <span>

#include "tools/verbs/layer_table.h"

namespace lenslet::tool {

/// The Trace Event Format's JSON: the layers end to end, each as long as its median, with what is known of it as its
/// arguments. Error(io) when it cannot be written; no half of it stays.
void write_trace(const std::filesystem::path& file, const std::string& model, const std::string& device,
                 std::span<const LayerRow> rows);

}  // namespace lenslet::tool
