// FFTs of one line of a tile in registers, for kernels and for the host test. No guard: each includes it in its own
// namespace, after <utility> and a definition of FFT_INLINE. All indices and factors are compile-time constants. V:
// float, double in the test.
//
// A real tile of N x N has as many numbers as its spectrum: kept are N/2 columns of N slots, a pair of numbers each.
//   column j > 0, slot i    X[i][j], complex
//   column 0,     slot i    X[i][0] for 0 < i < N/2, X[N - i][N/2] for i > N/2, both complex
//                 slot 0    X[0][0] and X[0][N/2], real both; slot N/2: X[N/2][0] and X[N/2][N/2]
// The rest follows from X[N - i][N - j] = conj X[i][j]. N is a multiple of 4 with factors 2, 3 and 5.

/// f(0), f(1), .. f(Count - 1), each a std::integral_constant.
template <int... I, typename F>
FFT_INLINE void fft_each_of(std::integer_sequence<int, I...>, const F& f) {
  (f(std::integral_constant<int, I>()), ...);
}
template <int Count, typename F>
FFT_INLINE void fft_each(const F& f) {
  fft_each_of(std::make_integer_sequence<int, Count>(), f);
}

/// The sine (Odd = 1) or cosine (0) of x <= pi / 4 by its series.
FFT_INLINE constexpr double fft_series(double x, int odd) {
  double term = odd == 1 ? x : 1, sum = term;
  for (int i = 1 + odd; i < 24; i += 2) {
    term *= -x * x / (i * (i + 1));
    sum += term;
  }
  return sum;
}
/// cos(2 pi k / n), k >= 0.
FFT_INLINE constexpr double fft_cos(int k, int n) {
  constexpr double pi = 3.14159265358979323846;
  k %= n;
  if (2 * k > n) k = n - k;
  const bool negative = 4 * k > n;
  // Reduces to the first quarter: k / n = twice / (2 n).
  const int twice = negative ? n - 2 * k : 2 * k;
  const double value = 4 * twice <= n ? fft_series(pi * twice / n, 0) : fft_series(pi * (n - 2 * twice) / (2 * n), 1);
  return negative ? -value : value;
}
/// sin(2 pi k / n)
FFT_INLINE constexpr double fft_sin(int k, int n) { return fft_cos(4 * k + 3 * n, 4 * n); }

FFT_INLINE float fft_fma(float a, float b, float c) { return fmaf(a, b, c); }
FFT_INLINE double fft_fma(double a, double b, double c) { return fma(a, b, c); }

/// (re + i im) e^(-2 pi i K / N)
template <int K, int N, typename V>
FFT_INLINE void fft_rotate(V& re, V& im) {
  constexpr int k = K % N;
  constexpr V c = static_cast<V>(fft_cos(k, N)), s = static_cast<V>(fft_sin(k, N));
  const V x = re, y = im;
  if constexpr (k == 0) {
  } else if constexpr (4 * k == N) {
    re = y;
    im = -x;
  } else if constexpr (2 * k == N) {
    re = -x;
    im = -y;
  } else if constexpr (4 * k == 3 * N) {
    re = -y;
    im = x;
  } else if constexpr (8 * k == N) {
    re = c * (x + y);
    im = c * (y - x);
  } else if constexpr (8 * k == 3 * N) {
    re = s * (y - x);
    im = -s * (x + y);
  } else {
    re = fft_fma(c, x, s * y);
    im = fft_fma(c, y, -s * x);
  }
}

template <int N>
inline constexpr int fft_radix = N % 4 == 0   ? 4
                                 : N % 2 == 0 ? 2
                                 : N % 3 == 0 ? 3
                                              : 5;

/// The transform of Radix numbers, in place.
template <typename V>
FFT_INLINE void fft_small(V (&re)[2], V (&im)[2]) {
  const V r = re[1], i = im[1];
  re[1] = re[0] - r;
  im[1] = im[0] - i;
  re[0] = re[0] + r;
  im[0] = im[0] + i;
}
template <typename V>
FFT_INLINE void fft_small(V (&re)[3], V (&im)[3]) {
  constexpr V s = static_cast<V>(fft_sin(1, 3)), half = static_cast<V>(0.5);
  const V ar = re[1] + re[2], ai = im[1] + im[2];
  const V dr = s * (re[1] - re[2]), di = s * (im[1] - im[2]);
  const V mr = fft_fma(-half, ar, re[0]), mi = fft_fma(-half, ai, im[0]);
  re[0] = re[0] + ar;
  im[0] = im[0] + ai;
  re[1] = mr + di;
  im[1] = mi - dr;
  re[2] = mr - di;
  im[2] = mi + dr;
}
template <typename V>
FFT_INLINE void fft_small(V (&re)[4], V (&im)[4]) {
  const V ar = re[0] + re[2], ai = im[0] + im[2], br = re[0] - re[2], bi = im[0] - im[2];
  const V cr = re[1] + re[3], ci = im[1] + im[3], dr = re[1] - re[3], di = im[1] - im[3];
  re[0] = ar + cr;
  im[0] = ai + ci;
  re[1] = br + di;
  im[1] = bi - dr;
  re[2] = ar - cr;
  im[2] = ai - ci;
  re[3] = br - di;
  im[3] = bi + dr;
}
template <typename V>
FFT_INLINE void fft_small(V (&re)[5], V (&im)[5]) {
  constexpr V c1 = static_cast<V>(fft_cos(1, 5)), c2 = static_cast<V>(fft_cos(2, 5));
  constexpr V s1 = static_cast<V>(fft_sin(1, 5)), s2 = static_cast<V>(fft_sin(2, 5));
  const V ar = re[1] + re[4], ai = im[1] + im[4], br = re[1] - re[4], bi = im[1] - im[4];
  const V cr = re[2] + re[3], ci = im[2] + im[3], dr = re[2] - re[3], di = im[2] - im[3];
  const V mr = fft_fma(c1, ar, fft_fma(c2, cr, re[0])), mi = fft_fma(c1, ai, fft_fma(c2, ci, im[0]));
  const V nr = fft_fma(c2, ar, fft_fma(c1, cr, re[0])), ni = fft_fma(c2, ai, fft_fma(c1, ci, im[0]));
  const V pr = fft_fma(s1, br, s2 * dr), pi = fft_fma(s1, bi, s2 * di);
  const V qr = fft_fma(s2, br, -s1 * dr), qi = fft_fma(s2, bi, -s1 * di);
  re[0] = re[0] + (ar + cr);
  im[0] = im[0] + (ai + ci);
  re[1] = mr + pi;
  im[1] = mi - pr;
  re[4] = mr - pi;
  im[4] = mi + pr;
  re[2] = nr + qi;
  im[2] = ni - qr;
  re[3] = nr - qi;
  im[3] = ni + qr;
}

/// X[k] = the sum of x[j] e^(-2 pi i j k / N), in place. Swap re and im for the inverse, without 1/N. One mixed-radix
/// step: transforms of `radix` numbers N / radix apart, twiddles, `radix` transforms of N / radix.
template <int N, typename V>
FFT_INLINE void fft(V (&re)[N], V (&im)[N]) {
  if constexpr (N > 1) {
    constexpr int radix = fft_radix<N>, rest = N / radix;
    V part_re[radix][rest], part_im[radix][rest];
    fft_each<rest>([&](auto j) {
      V x[radix], y[radix];
      fft_each<radix>([&](auto part) {
        x[part.value] = re[j.value + part.value * rest];
        y[part.value] = im[j.value + part.value * rest];
      });
      fft_small(x, y);
      fft_each<radix>([&](auto part) {
        fft_rotate<j.value * part.value, N>(x[part.value], y[part.value]);
        part_re[part.value][j.value] = x[part.value];
        part_im[part.value][j.value] = y[part.value];
      });
    });
    fft_each<radix>([&](auto part) {
      fft<rest>(part_re[part.value], part_im[part.value]);
      fft_each<rest>([&](auto k) {
        re[radix * k.value + part.value] = part_re[part.value][k.value];
        im[radix * k.value + part.value] = part_im[part.value][k.value];
      });
    });
  }
}

/// FFT of N real numbers, the even ones in re and the odd ones in im. Gives re[0] = X[0], im[0] = X[N/2], both real,
/// and re[k] + i im[k] = 2 X[k] for 0 < k < N/2.
template <int N, typename V>
FFT_INLINE void fft_of_reals(V (&re)[N / 2], V (&im)[N / 2]) {
  constexpr int half = N / 2;
  fft<half>(re, im);
  const V first = re[0];
  re[0] = first + im[0];
  im[0] = first - im[0];
  re[half / 2] *= 2;
  im[half / 2] *= -2;
  fft_each<half / 2 - 1>([&](auto before) {
    constexpr int k = before.value + 1;
    // Twice the transform of the even numbers, and twice the rotated one of the odd.
    const V er = re[k] + re[half - k], ei = im[k] - im[half - k];
    V odd_re = im[k] + im[half - k], odd_im = re[half - k] - re[k];
    fft_rotate<k, N>(odd_re, odd_im);
    re[k] = er + odd_re;
    im[k] = ei + odd_im;
    re[half - k] = er - odd_re;
    im[half - k] = odd_im - ei;
  });
}

/// Its inverse, from X[0], X[N/2] and unscaled X[k]: N times the real numbers.
template <int N, typename V>
FFT_INLINE void fft_to_reals(V (&re)[N / 2], V (&im)[N / 2]) {
  constexpr int half = N / 2;
  const V first = re[0];
  re[0] = first + im[0];
  im[0] = first - im[0];
  re[half / 2] *= 2;
  im[half / 2] *= -2;
  fft_each<half / 2 - 1>([&](auto before) {
    constexpr int k = before.value + 1;
    const V er = re[k] + re[half - k], ei = im[k] - im[half - k];
    V odd_re = re[k] - re[half - k], odd_im = im[k] + im[half - k];
    fft_rotate<N - k, N>(odd_re, odd_im);
    // even + i odd, and of half - k: conj(even) + i conj(odd)
    re[k] = er - odd_im;
    im[k] = ei + odd_re;
    re[half - k] = er + odd_im;
    im[half - k] = odd_re - ei;
  });
  fft<half>(im, re);
}

/// Splits column 0, where re + i im is the transform of the real X[.][0] + i X[.][N/2], into its slots; complex slots
/// get twice their value.
template <int N, typename V>
FFT_INLINE void fft_separate(V (&re)[N], V (&im)[N]) {
  fft_each<N / 2 - 1>([&](auto before) {
    constexpr int k = before.value + 1;
    const V r = re[k], i = im[k], other = re[N - k];
    re[k] = r + other;
    im[k] = i - im[N - k];
    re[N - k] = i + im[N - k];
    im[N - k] = other - r;
  });
}

/// The inverse of fft_separate(), from unscaled product slots, whose pairs of real numbers are exchanged.
template <int N, typename V>
FFT_INLINE void fft_join(V (&re)[N], V (&im)[N]) {
  fft_each<2>([&](auto slot) {
    const V first = im[slot.value * N / 2];
    im[slot.value * N / 2] = re[slot.value * N / 2];
    re[slot.value * N / 2] = first;
  });
  fft_each<N / 2 - 1>([&](auto before) {
    constexpr int k = before.value + 1;
    const V ar = re[k], ai = im[k];          // X[k][0]
    const V br = re[N - k], bi = im[N - k];  // X[k][N/2]
    re[k] = ar - bi;
    im[k] = ai + br;
    re[N - k] = ar + bi;
    im[N - k] = br - ai;
  });
}
