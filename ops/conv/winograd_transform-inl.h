// y = B^T x and y = A^T x, one axis of a Winograd tile, once for the CPU and CUDA. No guard: each includes it inside
// its own namespace (the CPU's once for each instruction set), with what its functions are declared by in
// WINOGRAD_INLINE. `Math` computes with values V, vectors on the CPU and floats on CUDA:
//   add(V, V), sub(V, V)
//   times(float coefficient, V x)        coefficient * x
//   plus(float coefficient, V x, V sum)  coefficient * x + sum, rounded once

// Coefficients as scalars: elements of a constexpr array cannot be named in device code. All are exact.
template <int M, int Row, int J>
inline constexpr float winograd_bt = static_cast<float>(winograd_matrices<M>.bt[Row][J]);
template <int M, int Row, int J>
inline constexpr float winograd_at = static_cast<float>(winograd_matrices<M>.at[Row][J]);

template <int M>
inline constexpr int winograd_alpha = WinogradMatrices<M>::alpha;

/// Is bt[Row][j] not 0 for a j of J, J + 2, ..?
template <int M, int Row, int J>
WINOGRAD_INLINE constexpr bool any_bt_left() {
  if constexpr (J >= winograd_alpha<M>)
    return false;
  else
    return winograd_bt<M, Row, J> != 0 || any_bt_left<M, Row, J + 2>();
}

/// The sum of bt[Row][j] * x[j] over j = J, J + 2, .. : one half of a row of B^T.
template <int M, int Row, int J, typename Math, typename V>
WINOGRAD_INLINE V half_row(const Math& math, const V (&x)[winograd_alpha<M>]) {
  static_assert(any_bt_left<M, Row, J>());
  constexpr float coefficient = winograd_bt<M, Row, J>;
  if constexpr (!any_bt_left<M, Row, J + 2>())
    return math.times(coefficient, x[J]);
  else if constexpr (coefficient == 0)
    return half_row<M, Row, J + 2>(math, x);
  else
    return math.plus(coefficient, x[J], half_row<M, Row, J + 2>(math, x));
}

/// The rows of points +p and -p: the even half plus and minus the odd half.
template <int M, int Pair, typename Math, typename V>
WINOGRAD_INLINE void input_pairs(const Math& math, const V (&x)[winograd_alpha<M>], V (&y)[winograd_alpha<M>]) {
  if constexpr (Pair < M / 2) {
    constexpr int row = 1 + 2 * Pair;
    const V even = half_row<M, row, 0>(math, x), odd = half_row<M, row, 1>(math, x);
    y[row] = math.add(even, odd);
    y[row + 1] = math.sub(even, odd);
    input_pairs<M, Pair + 1>(math, x, y);
  }
}

/// y = B^T x.
template <int M, typename Math, typename V>
WINOGRAD_INLINE void input_transform(const Math& math, const V (&x)[winograd_alpha<M>], V (&y)[winograd_alpha<M>]) {
  y[0] = half_row<M, 0, 0>(math, x);
  input_pairs<M, 0>(math, x, y);
  y[M + 1] = half_row<M, M + 1, 1>(math, x);
}

/// The sum of at[Row][1 + 2 * pair] * half[pair] from `Pair` on.
template <int M, int Row, int Pair, typename Math, typename V>
WINOGRAD_INLINE V power_sum(const Math& math, const V (&half)[M / 2]) {
  constexpr float coefficient = winograd_at<M, Row, 1 + 2 * Pair>;
  if constexpr (Pair + 1 == M / 2)
    return math.times(coefficient, half[Pair]);
  else
    return math.plus(coefficient, half[Pair], power_sum<M, Row, Pair + 1>(math, half));
}

template <int M, int Row, typename Math, typename V>
WINOGRAD_INLINE void output_rows(const Math& math, const V (&even)[M / 2], const V (&odd)[M / 2], V (&y)[M]) {
  if constexpr (Row < M) {
    y[Row] = power_sum<M, Row, 0>(math, Row % 2 == 0 ? even : odd);
    output_rows<M, Row + 1>(math, even, odd, y);
  }
}

/// y = A^T x. Column 0 belongs to the point 0, the last to infinity: they enter one output each.
template <int M, typename Math, typename V>
WINOGRAD_INLINE void output_transform(const Math& math, const V (&x)[winograd_alpha<M>], V (&y)[M]) {
  V even[M / 2], odd[M / 2];
  for (int pair = 0; pair < M / 2; ++pair) {
    even[pair] = math.add(x[1 + 2 * pair], x[2 + 2 * pair]);
    odd[pair] = math.sub(x[1 + 2 * pair], x[2 + 2 * pair]);
  }
  output_rows<M, 0>(math, even, odd, y);
  y[0] = math.add(y[0], x[0]);
  y[M - 1] = math.add(y[M - 1], x[M + 1]);
}
