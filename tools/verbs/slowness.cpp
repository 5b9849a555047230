#include "tools/verbs/slowness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "tools/verbs/terminal.h"
#include "tools/verbs/text_table.h"

namespace lenslet::tool {

namespace {

double sum_of(std::span<const LayerRow> rows, double (*of)(const LayerTime&)) {
  return std::transform_reduce(rows.begin(), rows.end(), 0.0, std::plus(),
                               [&](const LayerRow& row) { return of(row.time); });
}

std::string kind_of(const StepInfo& step) {
  return step.algorithm.empty() ? step.op : fmt::format("{} by {}", step.op, step.algorithm);
}

/// Three digits: "0.229 GFLOP", "12.8 MB".
std::string amount(double value, const char* unit) {
  const char* prefix = "";
  for (const auto& [name, size] : {std::pair("T", 1e12), {"G", 1e9}, {"M", 1e6}, {"K", 1e3}})
    if (*prefix == '\0' && value >= size) {
      prefix = name;
      value /= size;
    }
  return fmt::format("{:.3g} {}{}", value, prefix, unit);
}

/// "0.229 GFLOP" and "60 GFLOP/s", of what the limit is of.
std::pair<std::string, std::string> work_and_rate(const LayerTime& layer) {
  const bool moves = layer.floor->by == "bytes";
  const double work = moves ? static_cast<double>(layer.step.bytes) : layer.step.flops;
  const char* const unit = moves ? "B" : "FLOP";
  return {amount(work, unit), amount(1e6 * work / layer.floor->us, unit) + "/s"};
}

/// "; each output sums only 27 products, too few to hide it", for convolutions whose loads and stores count; else
/// empty.
std::string few_products(const StepInfo& step) {
  constexpr double few = 64;
  const double outputs = step.output_shapes.empty() ? 0.0 : static_cast<double>(step.output_shapes[0].elems());
  const double products = outputs > 0 ? step.flops / 2 / outputs : 0;
  if (step.op != "Conv" || products <= 0 || products >= few) return {};
  return fmt::format("; each output sums only {:.0f} products, too few to hide it", products);
}

/// The time as a sum, by that with the data in the caches.
std::string parts(const LayerTime& layer) {
  const double us = layer.us.median, cached = std::min(layer.in_caches_us, us), limit = layer.floor->us;
  const auto [work, rate] = work_and_rate(layer);
  const std::string overhead =
      fmt::format("{} to overhead in its kernel (packing, loads from the caches)", duration(cached - limit));
  std::string text;
  if (layer.floor->by == "bytes") {
    text = fmt::format("moving {} takes {} at this machine's {}", work, duration(limit), rate);
    if (cached < us)
      text += fmt::format("; {} more go to waiting for data that are not in the caches",
                          duration(us - std::max(cached, limit)));
    if (cached > limit) text += fmt::format("; {}{}", overhead, few_products(layer.step));
    return text;
  }
  text = cached < us ? fmt::format("{} = {} with its data in the caches + {} to fetch them from memory", duration(us),
                                   duration(cached), duration(us - cached))
                     : fmt::format("{}, and no less with its data in the caches", duration(us));
  if (cached > limit)
    text += fmt::format(". Of the {}, {} go to arithmetic ({} at this machine's {}), {}", duration(cached),
                        duration(limit), work, rate, overhead);
  return text + few_products(layer.step);
}

/// What likely takes the time above the limit.
std::string above_limit(const LayerTime& layer, int threads) {
  constexpr double share_us = 50;  // below which starting the threads takes a good part
  const double us = layer.us.median, estimate = layer.step.estimated_us;
  const std::string lost = duration(layer.lost_us());
  const auto likely = [&](const std::string& what) { return fmt::format("the other {} likely go to {}", lost, what); };
  if (us < short_layer_us) return likely("starting it, in so short a layer");
  if (threads_wait(layer, threads))
    return likely(fmt::format("threads that wait: only {:.1f} of {} are at work", layer.threads_at_work, threads));
  if (threads > 1 && us < share_us)
    return likely(fmt::format("starting and joining {} threads, in so short a layer", threads));
  if (layer.floor->other_us > 0.4 * layer.lost_us())
    return likely(fmt::format("{}, which need {} by themselves and overlap only in part",
                              layer.floor->by == "bytes" ? "its operations" : "its reads and writes",
                              duration(layer.floor->other_us)));
  if (const std::string few = few_products(layer.step); !few.empty()) return likely("loading and storing" + few);
  if (estimate > 1.5 * layer.floor->us)
    return likely(
        fmt::format("tiles that are not full, and packing: its kernel is estimated at {}", duration(estimate)));
  return likely(fmt::format("caches that are slower than its estimate, {}, counts on", duration(estimate)));
}

}  // namespace

std::string short_name(const StepInfo& step) {
  constexpr std::size_t most = 60;
  return shortened(printable(step.name), most, Cut::middle, locale_is_utf8());
}

bool threads_wait(const LayerTime& layer, int threads) {
  return layer.threads_at_work > 0 && layer.threads_at_work < 0.6 * threads;
}

std::string duration(double us) {
  if (us >= 1e6) return fmt::format("{:.3g} s", us / 1e6);
  return us >= 1e3 ? fmt::format("{:.3g} ms", us / 1e3) : fmt::format("{:.3g} us", us);
}

void count_threads(std::span<LayerTime> layers, const Timeline& timeline) {
  struct Work {
    double busy = 0, begin = HUGE_VAL, end = 0;
  };
  std::map<int, Work> of_step;
  for (const TimelineSpan& span : timeline.spans) {
    Work& work = of_step[span.step];
    work.busy += span.end_us - span.begin_us;
    work.begin = std::min(work.begin, span.begin_us);
    work.end = std::max(work.end, span.end_us);
  }
  for (LayerTime& layer : layers) {
    const auto work = of_step.find(layer.number);
    if (work == of_step.end() || work->second.end <= work->second.begin) continue;
    const auto threads = static_cast<double>(timeline.lanes.size());
    if (!layer.band.empty())
      layer.in_band_us = work->second.busy / threads;
    else if (threads > 1)
      layer.threads_at_work = work->second.busy / (work->second.end - work->second.begin);
  }
}

std::string time_because(const LayerTime& layer, int threads) {
  if (!layer.floor || layer.floor->us <= 0) return {};
  const Quantiles& us = layer.us;
  if (us.count > 4 && us.median > 1.5 * us.p10)
    return fmt::format("other work disturbed it: half of its runs took over {}, a tenth under {}; the limit is {}",
                       duration(us.median), duration(us.p10), duration(layer.floor->us));
  const double percent = layer.percent_of_floor();
  if (percent > 100) return fmt::format("faster than the limit counts: {}", layer.above);
  std::string in_a_run;
  if (!layer.band.empty())
    in_a_run = layer.in_band_us > 0 ? fmt::format(". In a run, computed row by row with its neighbours, it takes {}",
                                                  duration(layer.in_band_us))
                                    : ". That is alone: runs compute it in rows with its neighbours";
  const bool short_of_time = layer.us.median < short_layer_us || threads_wait(layer, threads);
  if (percent <= 80 && layer.in_caches_us > 0 && !short_of_time) return parts(layer) + in_a_run;
  const auto [work, rate] = work_and_rate(layer);
  const std::string limit =
      fmt::format("{} take at least {} at this machine's {}", work, duration(layer.floor->us), rate);
  if (percent > 80) return fmt::format("near what this machine allows: {}{}", limit, in_a_run);
  const char* const mostly = percent <= 50                ? ""
                             : layer.floor->by == "bytes" ? "mostly memory: "
                                                          : "mostly arithmetic: ";
  return fmt::format("{}{}; {}{}", mostly, limit, above_limit(layer, threads), in_a_run);
}

std::string disturbance(std::span<const LayerRow> rows, const std::optional<Quantiles>& run, bool on_cpu) {
  const double median = sum_us(rows);
  const double p10 = sum_of(rows, [](const LayerTime& layer) { return layer.us.p10; });
  const double beyond = sum_of(rows, [](const LayerTime& layer) {
    const bool unexplained = layer.above == limit_was_low && layer.percent_of_floor() > 110;
    return unexplained ? layer.us.median : 0.0;
  });
  constexpr double noticed_us = 100;  // what a run takes beside its layers
  std::string how;
  if (rows.size() > 1 && median > 1.25 * p10)
    how =
        fmt::format("the layers take {} at their medians, but {} at their best tenth", duration(median), duration(p10));
  else if (on_cpu && run && run->median > 1.3 * median + noticed_us)  // CUDA: with copies from and to the host
    how = fmt::format("whole runs took {}, but the layers one by one {}", duration(run->median), duration(median));
  else if (run && run->p90 > 1.5 * run->p10 + noticed_us)
    how = fmt::format("whole runs took from {} to {}", duration(run->p10), duration(run->p90));
  else if (beyond > 0.3 * median)
    how = "many layers were faster than the limits that were measured beside them";
  if (how.empty()) return {};
  return fmt::format(
      "This machine probably had other work while it was measured: {}. Measure again without it, or longer "
      "(--seconds), before comparing.",
      how);
}

std::vector<std::string> slowest(std::span<const LayerRow> rows, bool disturbed) {
  const auto median = [](const LayerRow& one) { return one.time.us.median; };
  const auto row = std::ranges::max_element(rows, {}, median);
  if (row == rows.end()) return {};
  const LayerTime& layer = row->time;
  const double all = sum_us(rows);
  const LayerRow* second = nullptr;
  for (const LayerRow& one : rows)
    if (&one != &*row && (second == nullptr || median(one) > median(*second))) second = &one;
  std::vector<std::string> lines{fmt::format(
      "Slowest: {} ({}), {}{}, {:.1f} % of all layers{}{}", short_name(layer.step), kind_of(layer.step),
      duration(layer.us.median), layer.band.empty() ? "" : " alone", all > 0 ? 100 * layer.us.median / all : 0.0,
      layer.floor ? fmt::format("; the machine's limit is {}", duration(layer.floor->us)) : "",
      second ? fmt::format("; next {}, {}", short_name(second->time.step), duration(second->time.us.median)) : "")};
  if (!layer.time_because.empty()) lines.push_back("Why so long: " + layer.time_because);
  if (!layer.advice.empty())
    lines.push_back(fmt::format("What to do: {}{}", disturbed ? "first measure again. " : "", layer.advice));
  std::map<std::string, std::pair<std::size_t, double>> kinds;
  for (const LayerRow& one : rows) {
    auto& [count, us] = kinds[kind_of(one.time.step)];
    ++count;
    us += one.time.us.median;
  }
  const auto most = std::ranges::max_element(kinds, {}, [](const auto& kind) { return kind.second.second; });
  const auto& [count, us] = most->second;
  if (count > 1)
    lines.push_back(fmt::format("Most time: {}, {} in {} of {} layers, {:.1f} %", most->first, duration(us), count,
                                rows.size(), all > 0 ? 100 * us / all : 0.0));
  return lines;
}

}  // namespace lenslet::tool
