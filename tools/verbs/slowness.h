#pragma once
// Why a layer takes its time, and whether the times can be trusted: sentences from what was measured.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lenslet/timeline.h"
#include "tools/verbs/layer_table.h"
#include "tools/verbs/layer_times.h"

namespace lenslet::tool {

/// A layer below it takes a good part of its time to start.
constexpr double short_layer_us = 10;

/// Whether few of the threads work on it; `threads`: all.
bool threads_wait(const LayerTime& layer, int threads);

/// "0.71 us", "310 us", "3.1 ms".
std::string duration(double us);

/// Of a step, for sentences: its middle may be left out.
std::string short_name(const StepInfo& step);

/// Sets LayerTime::in_band_us of steps in bands, and with several threads threads_at_work of others, from a run on the
/// CPU.
void count_threads(std::span<LayerTime> layers, const Timeline& timeline);

/// What holds a layer: the machine's arithmetic, its memory, threads that wait, other work. Empty without limits.
/// `threads`: the CPU's; 1 on a GPU.
std::string time_because(const LayerTime& layer, int threads);

/// How the figures show that the machine had other work while it was measured; else empty. `run`: of whole runs.
std::string disturbance(std::span<const LayerRow> rows, const std::optional<Quantiles>& run, bool on_cpu);

/// A line each: the layer with the greatest time; why it takes so long, and what to do, where these are known;
/// the operator and algorithm with the most time. None without rows. `disturbed`: as disturbance() says.
std::vector<std::string> slowest(std::span<const LayerRow> rows, bool disturbed);

}  // namespace lenslet::tool
