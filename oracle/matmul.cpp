// References of matrix products.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "lenslet/error.h"
#include "oracle/families.h"

namespace lenslet::oracle {

namespace {

std::vector<Array> gemm(const AttributeList& attributes, Inputs inputs) {
  const Array &a = at(inputs, 0), &b = at(inputs, 1);
  const bool trans_a = integer(attributes, "transA", 0) != 0, trans_b = integer(attributes, "transB", 0) != 0;
  const double alpha = real(attributes, "alpha", 1), beta = real(attributes, "beta", 1);
  const std::function<double(double)> activation = fused_activation(attributes);
  const AttributeValue* scales = nullptr;
  for (const auto& [name, value] : attributes)
    if (name == "weight_scale") scales = &value;
  const std::int64_t m = a.shape[trans_a ? 1 : 0], k = a.shape[trans_a ? 0 : 1], n = b.shape[trans_b ? 0 : 1];
  if (b.shape[trans_b ? 1 : 0] != k) throw Error(ErrorKind::invalid_argument, "oracle: matrices that do not multiply");
  // A's columns may be in nhwc order (pixels, then channels) while B's rows are in nchw order.
  const std::int64_t channels = integer(attributes, "a_channels", 0);
  const auto row_of_b = [&](std::int64_t l) {
    return channels == 0 ? l : l % channels * (k / channels) + l / channels;
  };
  Array y = sums(Shape{m, n}, a.dtype);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double factor = alpha;
      if (scales != nullptr) factor *= std::get<std::vector<double>>(*scales)[static_cast<std::size_t>(j)];
      Sum sum;
      for (std::int64_t l = 0; l < k; ++l)
        sum.add(a.values[static_cast<std::size_t>(trans_a ? l * m + i : i * k + l)] *
                b.values[static_cast<std::size_t>(trans_b ? j * k + row_of_b(l) : row_of_b(l) * n + j)]);
      sum = {sum.value * factor, sum.squares * factor * factor};
      if (has(inputs, 2)) {
        const Shape& c = inputs[2].shape;
        const std::int64_t columns = c.rank() > 0 ? c[c.rank() - 1] : 1;
        const std::int64_t row = c.rank() == 2 && c[0] != 1 ? i : 0, column = columns != 1 ? j : 0;
        sum.add(beta * inputs[2].values[static_cast<std::size_t>(row * columns + column)]);
      }
      put(y, static_cast<std::size_t>(i * n + j),
          activation ? through(activation, sum.value, sum.scale()) : Scaled{sum.value, sum.scale()});
    }
  return {y};
}

// The dimensions of an operand; vectors get a dimension of 1.
std::vector<std::int64_t> as_matrices(const Shape& shape, bool left) {
  std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
  if (dims.size() == 1) dims.insert(left ? dims.begin() : dims.end(), 1);
  return dims;
}

// Swaps the last two axes, if there are two.
Array with_last_swapped(const Array& x) {
  const int last = x.shape.rank() - 1;
  if (last < 1) return x;
  Array y = zeros(x.shape.with(last - 1, x.shape[last]).with(last, x.shape[last - 1]), x.dtype);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    Index index = index_of(y.shape, static_cast<std::int64_t>(i));
    std::swap(index[index.size() - 1], index[index.size() - 2]);
    y.values[i] = x.values[static_cast<std::size_t>(flat_of(x.shape, index))];
  }
  return y;
}

std::vector<Array> matmul(const AttributeList&, Inputs inputs) {
  const Array &a = at(inputs, 0), &b = at(inputs, 1);
  const std::vector<std::int64_t> da = as_matrices(a.shape, true), db = as_matrices(b.shape, false);
  const std::size_t rank = std::max(da.size(), db.size());
  const auto dim = [rank](const std::vector<std::int64_t>& dims, std::size_t d) {
    return d < rank - dims.size() ? 1 : dims[d - (rank - dims.size())];
  };
  std::vector<std::int64_t> full;
  for (std::size_t d = 0; d + 2 < rank; ++d) full.push_back(dim(da, d) == 1 ? dim(db, d) : dim(da, d));
  const std::int64_t m = dim(da, rank - 2), k = dim(da, rank - 1), n = dim(db, rank - 1);
  full.push_back(m);
  full.push_back(n);
  Array y = sums(Shape(full), a.dtype);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const Index index = index_of(y.shape, static_cast<std::int64_t>(i));
    std::int64_t batch_a = 0, batch_b = 0;
    for (std::size_t d = 0; d + 2 < rank; ++d) {
      batch_a = batch_a * dim(da, d) + (dim(da, d) == 1 ? 0 : index[d]);
      batch_b = batch_b * dim(db, d) + (dim(db, d) == 1 ? 0 : index[d]);
    }
    const std::int64_t row = index[rank - 2], column = index[rank - 1];
    Sum sum;
    for (std::int64_t l = 0; l < k; ++l)
      sum.add(a.values[static_cast<std::size_t>((batch_a * m + row) * k + l)] *
              b.values[static_cast<std::size_t>((batch_b * k + l) * n + column)]);
    put(y, i, sum);
  }
  // The result lacks the dimension that was added to a vector.
  if (b.shape.rank() == 1) full.pop_back();
  if (a.shape.rank() == 1) full.erase(full.end() - (b.shape.rank() == 1 ? 1 : 2));
  y.shape = Shape(full);
  return {y};
}

// ONNX Runtime's contrib operators, docs/ContribOperators.md.
std::vector<Array> fused_matmul(const AttributeList& attributes, Inputs inputs) {
  std::vector<Array> operands{at(inputs, 0), at(inputs, 1)};
  if (integer(attributes, "transA", 0) != 0) operands[0] = with_last_swapped(operands[0]);
  if (integer(attributes, "transB", 0) != 0) operands[1] = with_last_swapped(operands[1]);
  std::vector<Array> y = matmul({}, operands);
  for (double& value : y[0].values) value *= real(attributes, "alpha", 1);
  return y;
}

// One loop over all labels. An ellipsis becomes digits, the last axis 0.
std::vector<Array> einsum(const AttributeList& attributes, Inputs inputs) {
  std::vector<std::string> terms(1);
  std::string written = text(attributes, "equation", "");
  written.erase(std::remove(written.begin(), written.end(), ' '), written.end());
  const bool arrow = written.find("->") != std::string::npos;
  for (const char c : written)
    if (c == ',' || c == '>')
      terms.emplace_back();
    else if (c != '-')
      terms.back() += c;
  int most = 0;
  const auto spell = [&](std::string& term, int hidden) {
    const std::size_t dots = term.find("...");
    if (dots == std::string::npos) return;
    std::string digits;
    for (int d = hidden; d > 0; --d) digits += static_cast<char>('0' + d - 1);
    term.replace(dots, 3, digits);
    most = std::max(most, hidden);
  };
  for (std::size_t i = 0; i < inputs.size(); ++i)
    spell(terms.at(i), inputs[i].shape.rank() - static_cast<int>(terms[i].size()) + 3);
  if (arrow) {
    spell(terms.back(), most);
  } else {
    std::string all, result;
    for (const std::string& term : terms) all += term;
    std::sort(all.begin(), all.end());
    for (int d = most; d > 0; --d) result += static_cast<char>('0' + d - 1);
    for (const char c : all)
      if (c > '9' && std::count(all.begin(), all.end(), c) == 1) result += c;
    terms.push_back(result);
  }
  std::string labels = terms.back();  // the result's labels first
  std::vector<std::int64_t> dims(labels.size(), 1);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    for (std::size_t d = 0; d < terms[i].size(); ++d) {
      if (labels.find(terms[i][d]) == std::string::npos) {
        labels += terms[i][d];
        dims.push_back(1);
      }
      std::int64_t& dim = dims[labels.find(terms[i][d])];
      dim = dim == 1 ? inputs[i].shape[static_cast<int>(d)] : dim;
    }
  Array y = sums(Shape(std::span(dims).first(terms.back().size())), at(inputs, 0).dtype);
  std::int64_t all = 1;
  for (const std::int64_t dim : dims) all *= dim;
  const std::int64_t in_sum = y.values.empty() ? 1 : all / static_cast<std::int64_t>(y.values.size());
  for (std::int64_t place = 0; place < all; ++place) {
    double product = 1;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      std::int64_t flat = 0;
      for (std::size_t d = 0; d < terms[i].size(); ++d) {
        const std::size_t label = labels.find(terms[i][d]);
        std::int64_t below = 1;
        for (std::size_t next = label + 1; next < dims.size(); ++next) below *= dims[next];
        const std::int64_t own = inputs[i].shape[static_cast<int>(d)];
        flat = flat * own + (own == 1 ? 0 : place / below % dims[label]);
      }
      product *= inputs[i].values[static_cast<std::size_t>(flat)];
    }
    const auto to = static_cast<std::size_t>(place / in_sum);
    y.values[to] += product;
    y.scale[to] += product * product;
  }
  for (std::size_t i = 0; i < y.values.size(); ++i) put(y, i, Sum{y.values[i], y.scale[i]});
  return {y};
}

// Where the channels of a head's token lie: strides of a pass's Attention ("q" to "y"), or those of [N,H,L,D] or
// [N,L,H*D]. With a table [n,L] its entries are rows of tokens, counted from the first of each n problems. Between
// channels a row is a channel, and its elements are the tokens.
struct Rows {
  std::int64_t offset = 0, batch = 0, head = 0, token = 0, next = 1;
  const Array* table = nullptr;
  Rows(const AttributeList& attributes, std::string_view name, const Shape& shape, std::int64_t heads) {
    if (const auto given = integers(attributes, name); !given.empty()) {
      offset = given[0], batch = given[1], head = given[2], token = given[3];
      if (integer(attributes, "between_channels", 0) != 0) std::swap(token, next);
      return;
    }
    const std::int64_t size = shape[shape.rank() - 1] / (shape.rank() == 3 ? heads : 1);
    const std::int64_t tokens = shape[shape.rank() - 2];
    batch = tokens * heads * size;
    head = shape.rank() == 3 ? size : tokens * size;
    token = shape.rank() == 3 ? heads * size : size;
  }
  std::size_t at(std::int64_t n, std::int64_t h, std::int64_t i) const {
    if (table == nullptr) return static_cast<std::size_t>(offset + n * batch + h * head + i * token);
    const std::int64_t problems = table->shape[0], tokens = table->shape[1];
    const auto row = static_cast<std::int64_t>(table->values[static_cast<std::size_t>(n % problems * tokens + i)]);
    return static_cast<std::size_t>(offset + h * head + (n / problems * problems * tokens + row) * token);
  }
  // Element `c` of row i.
  std::size_t at(std::int64_t n, std::int64_t h, std::int64_t i, std::int64_t c) const {
    return at(n, h, i) + static_cast<std::size_t>(c * next);
  }
};

// relu(Q) (relu(K)^T V) / (relu(Q) sum of relu(K) + epsilon).
Array linear_attention(const std::vector<std::int64_t>& sizes, Shape y_shape, const AttributeList& attributes,
                       const Array& q, const Array& k, const Array& v) {
  const std::int64_t heads = sizes[1], queries = sizes[2], keys = sizes[3], size = sizes[4], values = sizes[5];
  const Rows rows_q(attributes, "q", q.shape, heads), rows_k(attributes, "k", k.shape, heads),
      rows_v(attributes, "v", v.shape, heads), rows_y(attributes, "y", y_shape, heads);
  const auto relu = [](const Array& x, std::size_t row, std::int64_t c) {
    const double value = x.values[row + static_cast<std::size_t>(c)];
    return value < 0 ? 0 : value;
  };
  Array y = sums(y_shape, q.dtype);
  for (std::int64_t n = 0; n < sizes[0]; ++n)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < queries; ++i) {
        double divisor = real(attributes, "linear_epsilon", 0);
        std::vector<Sum> found(static_cast<std::size_t>(values));
        for (std::int64_t j = 0; j < keys; ++j)
          for (std::int64_t c = 0; c < size; ++c) {
            const double score = relu(q, rows_q.at(n, h, i), c) * relu(k, rows_k.at(n, h, j), c);
            divisor += score;
            for (std::size_t e = 0; e < found.size(); ++e) found[e].add(score * v.values[rows_v.at(n, h, j) + e]);
          }
        for (std::size_t e = 0; e < found.size(); ++e)
          put(y, rows_y.at(n, h, i) + e, Scaled{found[e].value / divisor, found[e].scale() / divisor});
      }
  return y;
}

// softmax(scale * Q K^T + bias) V, of rows of Q and K by their norms if so said; between channels of the transposed
// Q, K, V and Y. A probability errs as its score does, whose terms have a scale of their own.
std::vector<Array> attention(const AttributeList& attributes, Inputs inputs) {
  const Array& q = at(inputs, 0);
  const Array& k = has(inputs, 1) ? inputs[1] : q;
  const Array& v = has(inputs, 2) ? inputs[2] : k;
  std::vector<std::int64_t> sizes = integers(attributes, "sizes");  // N, H, L, S, D, E
  Shape y_shape = q.shape;
  if (sizes.empty()) {
    const int rank = q.shape.rank(), last = rank - 1;
    const std::int64_t heads = rank == 3 ? integer(attributes, "q_num_heads", 1) : q.shape[1];
    const std::int64_t per_row = rank == 3 ? heads : 1;
    sizes = {q.shape[0], heads, q.shape[last - 1], k.shape[last - 1], q.shape[last] / per_row, v.shape[last] / per_row};
    y_shape = q.shape.with(last, v.shape[last]);
  } else {
    y_shape = Shape(integers(attributes, "y_shape"));
  }
  if (has(attributes, "linear_epsilon")) return {linear_attention(sizes, y_shape, attributes, q, k, v)};
  const std::int64_t heads = sizes[1], queries = sizes[2], keys = sizes[3], size = sizes[4], values = sizes[5];
  Rows rows_q(attributes, "q", q.shape, heads), rows_k(attributes, "k", k.shape, heads),
      rows_v(attributes, "v", v.shape, heads), rows_y(attributes, "y", y_shape, heads);
  if (has(inputs, 4))
    for (Rows* const rows : {&rows_q, &rows_k, &rows_v, &rows_y}) rows->table = &inputs[4];
  const double scale = real(attributes, "scale", 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(size, 1))));
  const std::vector<double> head_scales = reals(attributes, "head_scales");
  const double epsilon = real(attributes, "qk_norm_epsilon", -1);  // none: not normalised
  const auto norm = [&](const Array& x, const Rows& rows, std::int64_t n, std::int64_t h, std::int64_t i) {
    double squares = 0;
    for (std::int64_t d = 0; d < size; ++d) squares += x.values[rows.at(n, h, i, d)] * x.values[rows.at(n, h, i, d)];
    return epsilon < 0 ? 1 : std::max(std::sqrt(squares), epsilon);
  };
  const auto bias = [&](std::int64_t n, std::int64_t h, std::int64_t i, std::int64_t j) {
    if (!has(inputs, 3)) return 0.0;
    const Shape& shape = inputs[3].shape;
    const std::int64_t index[] = {n, h, i, j};
    std::int64_t flat = 0;
    for (int d = 0; d < shape.rank(); ++d) flat = flat * shape[d] + index[4 - shape.rank() + d] % shape[d];
    return inputs[3].values[static_cast<std::size_t>(flat)];
  };
  Array y = sums(y_shape, q.dtype);
  for (std::int64_t n = 0; n < sizes[0]; ++n)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < queries; ++i) {
        std::vector<Sum> scores(static_cast<std::size_t>(keys));
        double top = -std::numeric_limits<double>::infinity(), total = 0;
        const double of_row =
            (head_scales.empty() ? scale : scale * head_scales[static_cast<std::size_t>(h)]) / norm(q, rows_q, n, h, i);
        for (std::int64_t j = 0; j < keys; ++j) {
          Sum& score = scores[static_cast<std::size_t>(j)];
          const double factor = of_row / norm(k, rows_k, n, h, j);
          for (std::int64_t d = 0; d < size; ++d)
            score.add(factor * q.values[rows_q.at(n, h, i, d)] * k.values[rows_k.at(n, h, j, d)]);
          const double added = bias(n, h, i, j);
          if (std::isinf(added))
            score = {added, 0};
          else
            score.add(added);
          top = std::max(top, score.value);
        }
        std::vector<double> share;
        for (const Sum& score : scores) share.push_back(std::isinf(score.value) ? 0 : std::exp(score.value - top));
        for (const double e : share) total += e;
        for (std::int64_t e = 0; e < values; ++e) {
          const auto value = [&](std::size_t j) { return v.values[rows_v.at(n, h, static_cast<std::int64_t>(j), e)]; };
          Sum sum;
          for (std::size_t j = 0; j < share.size(); ++j)
            if (share[j] > 0) sum.add(share[j] / total * value(j));
          for (std::size_t j = 0; j < share.size(); ++j)
            if (share[j] > 0) sum.add(0, share[j] / total * (value(j) - sum.value) * scores[j].scale());
          put(y, rows_y.at(n, h, i, e), sum);
        }
      }
  return {y};
}

constexpr Entry entries[] = {
    {"Attention", attention}, {"Gemm", gemm}, {"MatMul", matmul}, {"FusedMatMul", fused_matmul}, {"Einsum", einsum}};

}  // namespace

std::span<const Entry> matmul_entries() { return entries; }

}  // namespace lenslet::oracle
