#include "tools/verbs/layer_table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tools/verbs/check_rows.h"
#include "tools/verbs/csv.h"
#include "tools/verbs/terminal.h"

namespace lenslet::tool {

namespace {

/// Of the limit; the reason for more than 100% stands in JSON and with --layer.
std::string share_of_limit(double percent) { return percent > 100 ? ">100" : fmt::format("{:.1f}", percent); }

std::string why(const LayerRow& row) {
  std::string text = row.time.step.reason;
  if (row.check && (!row.check->passed() || row.check->not_finite > 0))
    text += (text.empty() ? "" : "; ") + row.check->verdict();
  return text;
}

// Of a terminal's tables: a share as a bar.
std::string share_bar(double fraction) {
  return isatty(STDOUT_FILENO) == 1 ? bar(fraction, 8, locale_is_utf8()) : std::string();
}

std::string tenths(double value) { return fmt::format("{:.1f}", value); }

using enum Column::Kind;
constexpr Column columns_of_layers[] = {
    {"layer", 0, name, 0, 20},
    {"op", 7, name},
    {"algorithm", 2, name, 0, 14},
    {"output", 11, word},
    {"us", 0},
    {"%", 1},
    {"share", 9, word},
    {"GFLOP/s", 8},
    {"limit us", 6},
    {"by", 10, word},
    {"%limit", 3},
    {"KB", 12},
    {"error", 13},
    {"of tol", 5},
    {"chosen because", 4, text, 0, 24},
};
constexpr Column columns_of_totals[] = {
    {"op", 0, name},    {"algorithm", 1, name}, {"layers", 3},   {"us", 0},     {"%", 2},
    {"share", 7, word}, {"GFLOP/s", 6},         {"limit us", 5}, {"%limit", 4},
};

constexpr Column columns_of_candidates[] = {{"candidate", 0, word}, {"us", 1},        {"+ us", 2},
                                            {"workspace", 5},       {"tolerance", 4}, {"config", 3, text}};

}  // namespace

const std::span<const Column> layer_columns = columns_of_layers, total_columns = columns_of_totals,
                              candidate_columns = columns_of_candidates;

double sum_us(std::span<const LayerRow> rows) {
  double us = 0;
  for (const LayerRow& row : rows) us += row.time.us.median;
  return us;
}

void print_table(std::span<const LayerRow> rows, std::size_t most, const TableOptions& options) {
  TextTable table(layer_columns, options);
  const double total = sum_us(rows);
  double floor_us = 0, flops = 0, rest_us = 0;
  std::size_t rest = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const LayerRow& row = rows[i];
    const LayerTime& time = row.time;
    const StepInfo& step = time.step;
    const double share = total > 0 ? time.us.median / total : 0.0;
    floor_us += time.floor_within_us();
    flops += step.flops;
    if (i >= most && (!row.check || row.check->passed())) {
      ++rest;
      rest_us += time.us.median;
      continue;
    }
    const bool checked = row.check && row.check->skipped.empty();
    const std::string none = row.check ? "-" : "";
    table.add(
        {step.name, step.op, step.algorithm, step.output_shapes.empty() ? "" : step.output_shapes[0].str(),
         tenths(time.us.median), tenths(100 * share), share_bar(share), tenths(time.gflops()),
         time.floor ? tenths(time.floor->us) : "", time.floor ? std::string(time.floor->by) : "",
         time.floor ? share_of_limit(time.percent_of_floor()) : "", tenths(static_cast<double>(step.bytes) / 1e3),
         checked ? fmt::format("{:.1e}", row.check->error) : none,
         checked ? fmt::format("{:.2f}", row.check->tolerance > 0 ? row.check->error / row.check->tolerance : 0) : none,
         why(row)});
  }
  const auto sum = [&](const std::string& name, double us) {
    std::vector<std::string> cells(layer_columns.size());
    cells[0] = name;
    cells[4] = tenths(us);
    cells[5] = tenths(total > 0 ? 100 * us / total : 100.0);
    return cells;
  };
  if (rest > 0) table.add(sum(fmt::format("{} others (--top 0)", rest), rest_us));
  std::vector<std::string> all = sum(fmt::format("{} timed alone", rows.size()), total);
  all[7] = tenths(total > 0 ? flops / total / 1e3 : 0.0);
  if (!rows.empty() && rows.front().time.floor) {
    all[8] = tenths(floor_us);
    all[10] = tenths(total > 0 ? 100 * floor_us / total : 0.0);
  }
  table.add(std::move(all));
  table.print();
}

void print_totals(std::span<const LayerRow> rows, const TableOptions& options) {
  struct Total {
    int count = 0;
    double us = 0, floor_us = 0, flops = 0;
  };
  std::map<std::pair<std::string, std::string>, Total> kinds;
  for (const LayerRow& row : rows) {
    Total& total = kinds[{row.time.step.op, row.time.step.algorithm}];
    ++total.count;
    total.us += row.time.us.median;
    total.floor_us += row.time.floor_within_us();
    total.flops += row.time.step.flops;
  }
  std::vector<std::pair<std::pair<std::string, std::string>, Total>> sorted(kinds.begin(), kinds.end());
  std::ranges::stable_sort(sorted, std::greater(), [](const auto& kind) { return kind.second.us; });
  const double all = sum_us(rows);
  const bool floors = !rows.empty() && rows.front().time.floor;
  TextTable table(total_columns, options);
  for (const auto& [kind, total] : sorted) {
    const double share = all > 0 ? total.us / all : 0.0, us = total.us > 0 ? total.us : HUGE_VAL;
    table.add({kind.first, kind.second, fmt::to_string(total.count), tenths(total.us), tenths(100 * share),
               share_bar(share), tenths(total.flops / us / 1e3), floors ? tenths(total.floor_us) : "",
               floors ? tenths(100 * total.floor_us / us) : ""});
  }
  fmt::print("\n");
  table.print();
}

void add_candidates(TextTable& table, const StepInfo& step, std::string_view indent) {
  for (const StepCandidate& candidate : step.candidates) {
    std::string algorithm =
        fmt::format("{}{} {}", indent, candidate.algorithm == step.algorithm ? '*' : ' ', candidate.algorithm);
    if (candidate.refusal.empty())
      table.add({std::move(algorithm), tenths(candidate.estimated_us),
                 candidate.neighbours_us != 0 ? tenths(candidate.neighbours_us) : "",
                 fmt::to_string(candidate.workspace_bytes), fmt::format("{:.1e}", candidate.tolerance),
                 candidate.config});
    else
      table.add({std::move(algorithm), "refuses: " + candidate.refusal});
  }
}

void print_in_full(const LayerRow& row, const std::string& device, const TableOptions& options) {
  const LayerTime& time = row.time;
  const StepInfo& step = time.step;
  TextTable table(candidate_columns, options);
  const std::size_t width = table.width();
  constexpr std::size_t titles = 14;
  const auto line = [&](const char* title, const std::string& text) {
    fmt::print("{}", wrapped(fmt::format("  {:<{}} {}", title, titles, text), width, titles + 3));
  };
  fmt::print("{}: {}\n", printable(step.name), printable(step.op));
  if (!step.problem.empty()) line("problem", step.problem);
  for (std::size_t i = 0; i < step.outputs.size(); ++i)
    line("output",
         fmt::format("{} {} {}", step.outputs[i], step.output_shapes[i].str(), to_string(step.output_formats[i])));
  if (!step.algorithm.empty())
    line("algorithm", step.config.empty() ? step.algorithm : fmt::format("{}, {}", step.algorithm, step.config));
  if (!step.reason.empty()) line("chosen because", step.reason);
  if (!time.band.empty()) line("in a band", time.band);
  line("time", fmt::format("{:.1f} us, p10 {:.1f}, p90 {:.1f}, {} runs; estimated {:.1f} us", time.us.median,
                           time.us.p10, time.us.p90, time.us.count, step.estimated_us));
  if (time.floor)
    line("limit", fmt::format("{:.1f} us by {}: reaches {:.1f}% of that speed{}{}", time.floor->us, time.floor->by,
                              time.percent_of_floor(), time.above.empty() ? "" : ": ", time.above));
  if (!time.time_because.empty()) line("why so long", time.time_because);
  line("work", fmt::format("{:.3f} MFLOP, {:.1f} GFLOP/s", step.flops / 1e6, time.gflops()));
  line("bytes", fmt::format("{} in and out, workspace {}", step.bytes, step.workspace_bytes));
  if (!time.advice.empty()) line("what to do", time.advice);
  if (row.check) {
    if (row.check->skipped.empty())
      line("error", fmt::format("{:.2e} of an element's terms, tolerance {:.2e}: {}", row.check->error,
                                row.check->tolerance, row.check->verdict()));
    else
      line("error", "not checked: " + row.check->skipped);
  }
  if (step.candidates.empty()) return;
  fmt::print("{}", wrapped("  candidates in the rule's order (*: chosen; us: estimated; + us: conversions beside it)",
                           width, 2));
  add_candidates(table, step, "  ");
  table.print();
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
                                              "chosen_estimated_ms",
                                              "floor_ms",
                                              "floor_by",
                                              "percent_of_floor",
                                              "above_100_because",
                                              "threads_at_work",
                                              "in_band_ms",
                                              "in_caches_ms",
                                              "time_because",
                                              "advice",
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
