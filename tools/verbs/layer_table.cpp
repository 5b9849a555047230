#include "tools/verbs/layer_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tools/verbs/check_rows.h"
#include "tools/verbs/csv.h"
#include "tools/verbs/terminal.h"

namespace lenslet::tool {

namespace {

// Keeps the end of a name, which says more than its beginning.
std::string fitted(const std::string& name, std::size_t width) {
  const std::string shown = printable(name);
  return shown.size() <= width ? shown : "..." + shown.substr(shown.size() - (width - 3));
}

template <typename F>
std::size_t widest(std::span<const LayerRow> rows, std::size_t least, std::size_t most, const F& text_of) {
  std::size_t width = least;
  for (const LayerRow& row : rows) width = std::max(width, text_of(row).size());
  return std::min(width, most);
}

// Reasons why shares are above 100%, by the letter that marks them.
class Marks {
 public:
  char of(const LayerTime& layer) {
    if (layer.above.empty()) return ' ';
    const auto found = std::ranges::find(reasons_, layer.above);
    const auto index = found - reasons_.begin();
    if (found == reasons_.end()) reasons_.push_back(layer.above);
    return static_cast<char>('a' + index);
  }
  void print() const {
    for (std::size_t i = 0; i < reasons_.size(); ++i)
      fmt::print("{}: above 100: {}\n", static_cast<char>('a' + i), reasons_[i]);
  }

 private:
  std::vector<std::string> reasons_;
};

std::string name_of(const LayerRow& row) { return printable(row.time.step.name); }
std::string algorithm_of(const LayerRow& row) { return row.time.step.algorithm; }
std::string shape_of(const LayerRow& row) {
  return row.time.step.output_shapes.empty() ? "" : row.time.step.output_shapes[0].str();
}

std::string error_text(const LayerRow& row) {
  if (!row.check) return {};
  const LayerCheck& check = *row.check;
  if (!check.skipped.empty()) return fmt::format(" {:>9} {:>7}", "-", "-");
  return fmt::format(" {:>9.1e} {:>7.2f}", check.error, check.tolerance > 0 ? check.error / check.tolerance : 0.0);
}

std::string why(const LayerRow& row) {
  std::string text = row.time.step.reason;
  if (row.check && (!row.check->passed() || row.check->not_finite > 0))
    text += (text.empty() ? "" : "; ") + row.check->verdict();
  return text;
}

double sum_us(std::span<const LayerRow> rows) {
  double us = 0;
  for (const LayerRow& row : rows) us += row.time.us.median;
  return us;
}

}  // namespace

void print_table(std::span<const LayerRow> rows) {
  const std::size_t name = widest(rows, 5, 36, name_of), algorithm = widest(rows, 9, 24, algorithm_of),
                    shape = widest(rows, 6, 20, shape_of);
  const bool floors = !rows.empty() && rows.front().time.floor, checks = !rows.empty() && rows.front().check;
  fmt::print("{:<{}} {:<16} {:<{}} {:<{}} {:>9} {:>5} {:>8}", "layer", name, "op", "algorithm", algorithm, "output",
             shape, "us", "%", "GFLOP/s");
  if (floors) fmt::print(" {:>9} {:>5} {:>7} ", "floor us", "by", "%floor");
  fmt::print(" {:>9}", "KB");
  if (checks) fmt::print(" {:>9} {:>7}", "error", "of tol");
  fmt::print("  why\n");
  const double total = sum_us(rows);
  Marks marks;
  double floor_us = 0, flops = 0;
  for (const LayerRow& row : rows) {
    const LayerTime& time = row.time;
    fmt::print("{:<{}} {:<16} {:<{}} {:<{}} {:>9.1f} {:>5.1f} {:>8.1f}", fitted(time.step.name, name), name,
               printable(time.step.op), time.step.algorithm, algorithm, shape_of(row), shape, time.us.median,
               total > 0 ? 100 * time.us.median / total : 0.0, time.gflops());
    if (time.floor) {
      fmt::print(" {:>9.1f} {:>5} {:>7.1f}{}", time.floor->us, time.floor->by, time.percent_of_floor(), marks.of(time));
      floor_us += time.floor->us;
    }
    flops += time.step.flops;
    fmt::print(" {:>9.1f}{}  {}\n", static_cast<double>(time.step.bytes) / 1e3, error_text(row), why(row));
  }
  fmt::print("{:<{}} {:>9.1f} {:>5.1f} {:>8.1f}", fmt::format("{} layers, their medians", rows.size()),
             name + 16 + algorithm + shape + 3, total, rows.empty() ? 0.0 : 100.0,
             total > 0 ? flops / total / 1e3 : 0.0);
  if (floors) fmt::print(" {:>9.1f} {:>5} {:>7.1f}", floor_us, "", total > 0 ? 100 * floor_us / total : 0.0);
  fmt::print("\n");
  marks.print();
  const auto in_bands = std::ranges::count_if(rows, [](const LayerRow& row) { return !row.time.band.empty(); });
  if (in_bands > 0)
    fmt::print("{} of them were timed one by one here and run in bands otherwise, in less time (inspect says which)\n",
               in_bands);
}

void print_totals(std::span<const LayerRow> rows) {
  struct Total {
    int count = 0;
    double us = 0, floor_us = 0, flops = 0;
  };
  std::map<std::pair<std::string, std::string>, Total> kinds;
  for (const LayerRow& row : rows) {
    Total& total = kinds[{printable(row.time.step.op), row.time.step.algorithm}];
    ++total.count;
    total.us += row.time.us.median;
    total.floor_us += row.time.floor ? row.time.floor->us : 0;
    total.flops += row.time.step.flops;
  }
  std::vector<std::pair<std::pair<std::string, std::string>, Total>> sorted(kinds.begin(), kinds.end());
  std::ranges::stable_sort(sorted, std::greater(), [](const auto& kind) { return kind.second.us; });
  const double all = sum_us(rows);
  const bool floors = !rows.empty() && rows.front().time.floor;
  fmt::print("\n{:<18} {:<24} {:>6} {:>10} {:>6} {:>8}", "op", "algorithm", "layers", "us", "%", "GFLOP/s");
  if (floors) fmt::print(" {:>10} {:>7}", "floor us", "%floor");
  fmt::print("\n");
  for (const auto& [kind, total] : sorted) {
    fmt::print("{:<18} {:<24} {:>6} {:>10.1f} {:>6.1f} {:>8.1f}", kind.first, kind.second, total.count, total.us,
               all > 0 ? 100 * total.us / all : 0.0, total.us > 0 ? total.flops / total.us / 1e3 : 0.0);
    if (floors) fmt::print(" {:>10.1f} {:>7.1f}", total.floor_us, total.us > 0 ? 100 * total.floor_us / total.us : 0.0);
    fmt::print("\n");
  }
}

void print_candidates(const StepInfo& step, std::size_t width, const std::string& indent) {
  for (const StepCandidate& candidate : step.candidates) {
    fmt::print("{}{} {:<{}} ", indent, candidate.algorithm == step.algorithm ? '*' : ' ', candidate.algorithm, width);
    if (!candidate.refusal.empty()) {
      fmt::print("refuses: {}\n", candidate.refusal);
      continue;
    }
    fmt::print("{:>10.1f} us estimated", candidate.estimated_us);
    if (candidate.neighbours_us != 0) fmt::print(" + {:.1f} us conversions", candidate.neighbours_us);
    fmt::print(", workspace {} bytes, tolerance {:.1e}", candidate.workspace_bytes, candidate.tolerance);
    fmt::print("{}{}\n", candidate.config.empty() ? "" : ", ", candidate.config);
  }
}

void print_in_full(const LayerRow& row, const std::string& device) {
  const LayerTime& time = row.time;
  const StepInfo& step = time.step;
  const auto line = [](const char* title, const std::string& text) { fmt::print("  {:<11} {}\n", title, text); };
  fmt::print("{}: {}\n", printable(step.name), printable(step.op));
  if (!step.problem.empty()) line("problem", step.problem);
  for (std::size_t i = 0; i < step.outputs.size(); ++i)
    line("output", fmt::format("{} {} {}", printable(step.outputs[i]), step.output_shapes[i].str(),
                               to_string(step.output_formats[i])));
  if (!step.algorithm.empty())
    line("algorithm", step.config.empty() ? step.algorithm : fmt::format("{}, {}", step.algorithm, step.config));
  if (!step.reason.empty()) line("because", step.reason);
  if (!time.band.empty()) line("in a band", printable(time.band));
  line("time", fmt::format("{:.1f} us, p10 {:.1f}, p90 {:.1f}, {} runs; estimated {:.1f} us", time.us.median,
                           time.us.p10, time.us.p90, time.us.count, step.estimated_us));
  if (time.floor)
    line("floor", fmt::format("{:.1f} us by {}, share {:.1f}%{}{}", time.floor->us, time.floor->by,
                              time.percent_of_floor(), time.above.empty() ? "" : ": ", time.above));
  line("work", fmt::format("{:.3f} MFLOP, {:.1f} GFLOP/s", step.flops / 1e6, time.gflops()));
  line("bytes", fmt::format("{} in and out, workspace {}", step.bytes, step.workspace_bytes));
  if (row.check) {
    if (row.check->skipped.empty())
      line("error", fmt::format("{:.2e} of an element's terms, tolerance {:.2e}: {}", row.check->error,
                                row.check->tolerance, row.check->verdict()));
    else
      line("error", "not checked: " + row.check->skipped);
  }
  if (step.candidates.empty()) return;
  fmt::print("  candidates in the rule's order (* is chosen)\n");
  std::size_t width = 0;
  for (const StepCandidate& candidate : step.candidates) width = std::max(width, candidate.algorithm.size());
  print_candidates(step, width, "  ");
  if (step.op == "Conv")
    fmt::print("  alone, all of them: lenslet bench conv --device {} --all-algorithms --problem \"{}\"\n", device,
               step.problem);
}

nlohmann::ordered_json to_json(const LayerRow& row) {
  nlohmann::ordered_json json = to_json(row.time);
  json["tolerance"] = row.time.step.tolerance;
  if (!row.check) return json;
  if (row.check->skipped.empty())
    json["error"] = number_or_infinite(row.check->error);
  else
    json["unchecked_because"] = row.check->skipped;
  json["verdict"] = row.check->verdict();
  return json;
}

void print_csv(std::span<const LayerRow> rows) {
  // The members of to_json(), whether a layer has them or not.
  static const std::vector<std::string> names{"name",
                                              "op",
                                              "algorithm",
                                              "config",
                                              "reason",
                                              "problem",
                                              "shape",
                                              "ms",
                                              "p10_ms",
                                              "p90_ms",
                                              "runs",
                                              "flops",
                                              "gflops",
                                              "bytes",
                                              "workspace_bytes",
                                              "estimated_ms",
                                              "runner_up",
                                              "runner_up_estimated_ms",
                                              "floor_ms",
                                              "floor_by",
                                              "percent_of_floor",
                                              "above_100_because",
                                              "band",
                                              "tolerance",
                                              "error",
                                              "unchecked_because",
                                              "verdict"};
  fmt::print("{}", csv_line(names, stdout));
  for (const LayerRow& row : rows) {
    const nlohmann::ordered_json layer = to_json(row);
    std::vector<std::string> fields;
    for (const std::string& name : names) {
      const auto found = layer.find(name);
      if (found == layer.end())
        fields.emplace_back();
      else
        fields.push_back(found->is_string() ? found->get<std::string>() : found->dump());
    }
    fmt::print("{}", csv_line(fields, stdout));
  }
}

}  // namespace lenslet::tool
