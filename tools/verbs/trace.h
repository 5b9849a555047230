#pragma once
// A run of a network as a file for Perfetto (ui.perfetto.dev) and chrome://tracing.

#include <filesystem>

#include "tools/verbs/measured_layers.h"

namespace lenslet::tool {

/// Writes the timeline as JSON in the Trace Event Format: a thread for each lane, an event for each span with its
/// layer's properties as arguments. Error(io) if it cannot be written; no partial file remains.
void write_trace(const std::filesystem::path& file, const MeasuredLayers& layers);

}  // namespace lenslet::tool
