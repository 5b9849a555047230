// y = B^T x and y = A^T x, one axis of a Winograd tile, shared by CPU and CUDA. No guard: each includes it in its own
// namespace (the CPU once per instruction set) after defining WINOGRAD_INLINE. `Math` computes with V, vectors on the
// CPU and floats on CUDA:
//   add(V, V), sub(V, V)
//   times(float coefficient, V x)        coefficient * x
//   plus(float coefficient, V x, V sum)  coefficient * x + sum, rounded once

// Coefficients as scalars: device code cannot name elements of a constexpr array. All are exact.
template <int M, int R, int Row, int J>
inline constexpr float winograd_bt = static_cast<float>(winograd_matrices<M, R>.bt[Row][J]);
template <int M, int R, int Row, int J>
inline constexpr float winograd_at = static_cast<float>(winograd_matrices<M, R>.at[Row][J]);

template <int M, int R = 3>
inline constexpr int winograd_alpha = WinogradMatrices<M, R>::alpha;
template <int M, int R = 3>
inline constexpr int winograd_pairs = WinogradMatrices<M, R>::pairs;

/// Whether bt[Row][j] is not 0 for some j of J, J + 2, ...
template <int M, int R, int Row, int J>
WINOGRAD_INLINE constexpr bool any_bt_left() {
  if constexpr (J >= winograd_alpha<M, R>)
    return false;
  else
    return winograd_bt<M, R, Row, J> != 0 || any_bt_left<M, R, Row, J + 2>();
}

/// The sum of bt[Row][j] * x[j] over j = J, J + 2, .. : one half of a row of B^T.
template <int M, int R, int Row, int J, typename Math, typename V>
WINOGRAD_INLINE V half_row(const Math& math, const V (&x)[winograd_alpha<M, R>]) {
  static_assert(any_bt_left<M, R, Row, J>());
  constexpr float coefficient = winograd_bt<M, R, Row, J>;
  if constexpr (!any_bt_left<M, R, Row, J + 2>())
    return math.times(coefficient, x[J]);
  else if constexpr (coefficient == 0)
    return half_row<M, R, Row, J + 2>(math, x);
  else
    return math.plus(coefficient, x[J], half_row<M, R, Row, J + 2>(math, x));
}

/// The rows of points +p and -p: the even half plus and minus the odd half.
template <int M, int R, int Pair, typename Math, typename V>
WINOGRAD_INLINE void input_pairs(const Math& math, const V (&x)[winograd_alpha<M, R>], V (&y)[winograd_alpha<M, R>]) {
  if constexpr (Pair < winograd_pairs<M, R>) {
    constexpr int row = 1 + 2 * Pair;
    const V even = half_row<M, R, row, 0>(math, x), odd = half_row<M, R, row, 1>(math, x);
    y[row] = math.add(even, odd);
    y[row + 1] = math.sub(even, odd);
    input_pairs<M, R, Pair + 1>(math, x, y);
  }
}

/// y = B^T x.
template <int M, int R = 3, typename Math, typename V>
WINOGRAD_INLINE void input_transform(const Math& math, const V (&x)[winograd_alpha<M, R>],
                                     V (&y)[winograd_alpha<M, R>]) {
  constexpr int last = winograd_alpha<M, R> - 1;
  y[0] = half_row<M, R, 0, 0>(math, x);
  input_pairs<M, R, 0>(math, x, y);
  y[last] = half_row<M, R, last, 1>(math, x);
}

/// The sum of at[Row][1 + 2 * pair] * half[pair] from `Pair` on.
template <int M, int R, int Row, int Pair, typename Math, typename V>
WINOGRAD_INLINE V power_sum(const Math& math, const V (&half)[winograd_pairs<M, R>]) {
  constexpr float coefficient = winograd_at<M, R, Row, 1 + 2 * Pair>;
  if constexpr (Pair + 1 == winograd_pairs<M, R>)
    return math.times(coefficient, half[Pair]);
  else
    return math.plus(coefficient, half[Pair], power_sum<M, R, Row, Pair + 1>(math, half));
}

template <int M, int R, int Row, typename Math, typename V>
WINOGRAD_INLINE void output_rows(const Math& math, const V (&even)[winograd_pairs<M, R>],
                                 const V (&odd)[winograd_pairs<M, R>], V (&y)[M]) {
  if constexpr (Row < M) {
    y[Row] = power_sum<M, R, Row, 0>(math, Row % 2 == 0 ? even : odd);
    output_rows<M, R, Row + 1>(math, even, odd, y);
  }
}

/// y = A^T x. Column 0 belongs to the point 0, the last to infinity: they enter one output each.
template <int M, int R = 3, typename Math, typename V>
WINOGRAD_INLINE void output_transform(const Math& math, const V (&x)[winograd_alpha<M, R>], V (&y)[M]) {
  constexpr int pairs = winograd_pairs<M, R>;
  V even[pairs], odd[pairs];
  for (int pair = 0; pair < pairs; ++pair) {
    even[pair] = math.add(x[1 + 2 * pair], x[2 + 2 * pair]);
    odd[pair] = math.sub(x[1 + 2 * pair], x[2 + 2 * pair]);
  }
  output_rows<M, R, 0>(math, even, odd, y);
  y[0] = math.add(y[0], x[0]);
  y[M - 1] = math.add(y[M - 1], x[winograd_alpha<M, R> - 1]);
}
