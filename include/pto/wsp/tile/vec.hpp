// SPDX-License-Identifier: MIT
/// \file
/// Loading, storing and folding vectors.
#pragma once

#include "pto/wsp/tile/lanes.hpp"

namespace pto::wsp::tile {

template <class V, class T>
PTO_INLINE inline V get(const T* p, Full) {
  static_assert(sizeof(V) == sizeof(T) * kLanes);
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

template <class V, class T>
PTO_INLINE inline void put(T* p, V v, Full) {
  __builtin_memcpy(p, &v, sizeof v);
}

/// Bytes of a line, which streaming stores should fill as a whole, and what alignment they need at most.
inline constexpr uint64_t kStreamAlign = 64;

template <class V, class T>
PTO_INLINE inline void put(T* p, V v, Past) {
#if defined(__clang__)
  __builtin_nontemporal_store(v, reinterpret_cast<V*>(p));
#else
#if defined(__AVX512F__)
  typedef long long Quads __attribute__((vector_size(64)));
  if constexpr (sizeof v == 64) return __builtin_ia32_movntdq512(reinterpret_cast<Quads*>(p), (Quads)v);
#endif
#if defined(__AVX__)
  typedef long long Pairs __attribute__((vector_size(32)));
  if constexpr (sizeof v == 32) return __builtin_ia32_movntdq256(reinterpret_cast<Pairs*>(p), (Pairs)v);
#endif
#if defined(__SSE2__)
  typedef long long Words __attribute__((vector_size(16)));
  if constexpr (sizeof v == 16) return __builtin_ia32_movntdq(reinterpret_cast<Words*>(p), (Words)v);
#endif
  put(p, v, Full{});
#endif
}

/// Makes the streaming stores of a scope visible to other threads at its end.
class StoreFence {
 public:
  explicit StoreFence(bool has_streamed) : has_streamed_(has_streamed) {}
  StoreFence(const StoreFence&) = delete;
  StoreFence& operator=(const StoreFence&) = delete;
  ~StoreFence() {
#if defined(__SSE2__)
    if (has_streamed_) __builtin_ia32_sfence();
#endif
  }

 private:
  [[maybe_unused]] bool has_streamed_;
};

/// Copy up to kPiece bytes in pieces of kPiece, half of it, ... and kUnit, of which `bytes` is a multiple: a
/// call of memcpy takes longer than all the rest of a row.
template <uint64_t kPiece, uint64_t kUnit>
PTO_INLINE inline void copy_pieces(void* to, const void* from, uint64_t bytes) {
  if constexpr (kPiece >= kUnit) {
    const uint64_t done = bytes & kPiece;
    if (done != 0) __builtin_memcpy(to, from, kPiece);
    copy_pieces<kPiece / 2, kUnit>(static_cast<char*>(to) + done, static_cast<const char*>(from) + done,
                                   bytes);
  }
}

#if defined(__AVX512F__) && PTO_LANES == 16
PTO_INLINE inline uint16_t tail_mask(Tail n) { return static_cast<uint16_t>((1u << n.n) - 1u); }
#elif defined(__AVX2__) && PTO_LANES == 8
PTO_INLINE inline I tail_mask(Tail n) { return lane_numbers() < static_cast<int32_t>(n.n); }
#endif

template <uint64_t kBytes>
struct VectorOf;
template <>
struct VectorOf<8> {
  typedef UL Type;
};
template <>
struct VectorOf<4> {
  typedef U Type;
};
template <>
struct VectorOf<2> {
  typedef H Type;
};
template <>
struct VectorOf<1> {
  typedef B Type;
};
/// Lanes of the size of T.
template <class T>
using Bits = typename VectorOf<sizeof(T)>::Type;

/// The first `n` lanes. Functions: their pieces take the compiler long, and rows have one rest at most.
template <class T, class V>
[[gnu::noinline]] V get_rest(const T* p, int64_t n) {
  V v{};
  copy_pieces<sizeof v, sizeof(T)>(&v, p, static_cast<uint64_t>(n) * sizeof(T));
  return v;
}
template <class T, class V>
[[gnu::noinline]] void put_rest(T* p, const V v, int64_t n) {
  copy_pieces<sizeof v, sizeof(T)>(p, &v, static_cast<uint64_t>(n) * sizeof(T));
}

template <class V, class T>
PTO_INLINE inline V get(const T* p, Tail n) {
  if constexpr (sizeof(T) == 4) {
#if defined(__AVX512F__) && PTO_LANES == 16
    return (V)__builtin_ia32_loadups512_mask(reinterpret_cast<const float*>(p), F{}, tail_mask(n));
#elif defined(__AVX2__) && PTO_LANES == 8
    return (V)__builtin_ia32_maskloadps256(reinterpret_cast<const F*>(p), tail_mask(n));
#endif
  }
  return (V)get_rest<T, typename VectorOf<sizeof(V) / kLanes>::Type>(p, n.n);
}

template <class V, class T>
PTO_INLINE inline void put(T* p, V v, Tail n) {
  if constexpr (sizeof(T) == 4) {
#if defined(__AVX512F__) && PTO_LANES == 16
    return __builtin_ia32_storeups512_mask(reinterpret_cast<float*>(p), (F)v, tail_mask(n));
#endif
  }
  // Masked stores of AVX2 take seven times as long on some processors.
  put_rest(p, (typename VectorOf<sizeof(V) / kLanes>::Type) v, n.n);
}

template <class V, class T>
PTO_INLINE inline void put(T* p, V v, First) {
  __builtin_memcpy(p, &v, sizeof(T));
}

template <class V, class T>
PTO_INLINE inline V get(const T* p, Upto n) {
  return n.is_full() ? get<V>(p, Full{}) : get<V>(p, Tail{n.n});
}
template <class V, class T>
PTO_INLINE inline void put(T* p, V v, Upto n) {
  if (n.is_full()) {
    put(p, v, Full{});
  } else {
    put(p, v, Tail{n.n});
  }
}

// Lanes of 8 or 16 bits in lanes of 32, and the low bits of those. g++ 12 makes two halves of it and a whole
// of them again, widens bytes one by one unless it goes by way of 16 bits, and narrows to them one by one.
// And the high 16 bits of each.
#if defined(__AVX512F__) && PTO_LANES == 16 && !defined(__clang__)
typedef char Bytes __attribute__((vector_size(16)));
PTO_INLINE inline U widen(H v) { return (U)__builtin_ia32_pmovzxwd512_mask((SH)v, I{}, -1); }
PTO_INLINE inline I widen(SH v) { return __builtin_ia32_pmovsxwd512_mask(v, I{}, -1); }
PTO_INLINE inline U widen(B v) { return (U)__builtin_ia32_pmovzxbd512_mask((Bytes)v, I{}, -1); }
PTO_INLINE inline I widen(SB v) { return __builtin_ia32_pmovsxbd512_mask((Bytes)v, I{}, -1); }
PTO_INLINE inline H narrow_16(U v) { return (H)__builtin_ia32_pmovdw512_mask((I)v, SH{}, -1); }
PTO_INLINE inline H high_16(U v) { return narrow_16(v >> 16); }
PTO_INLINE inline B narrow_8(U v) { return (B)__builtin_ia32_pmovdb512_mask((I)v, Bytes{}, -1); }
#elif defined(__AVX2__) && PTO_LANES == 8 && !defined(__clang__)
typedef char Bytes __attribute__((vector_size(16)));
typedef long long Words __attribute__((vector_size(16)));
PTO_INLINE inline Bytes in_low_half(B v) { return (Bytes)Words{(long long)v, 0}; }
PTO_INLINE inline U widen(H v) { return (U)__builtin_ia32_pmovzxwd256((SH)v); }
PTO_INLINE inline I widen(SH v) { return __builtin_ia32_pmovsxwd256(v); }
PTO_INLINE inline U widen(B v) { return (U)__builtin_ia32_pmovzxbd256(in_low_half(v)); }
PTO_INLINE inline I widen(SB v) { return __builtin_ia32_pmovsxbd256(in_low_half((B)v)); }
PTO_INLINE inline H narrow_16(U v) { return __builtin_convertvector(v, H); }
PTO_INLINE inline H high_16(U v) {
  const U high = v >> 16;  // nothing is saturated
  typedef long long Pairs __attribute__((vector_size(32)));
  const Pairs packed = __builtin_ia32_permdi256((Pairs)__builtin_ia32_packusdw256((I)high, (I)high), 8);
  return (H)Words{packed[0], packed[1]};
}
PTO_INLINE inline B narrow_8(U v) {
  const SH words = (SH) __builtin_convertvector(v & 0xffu, H);
  return (B)((Words)__builtin_ia32_packuswb128(words, words))[0];
}
#else
PTO_INLINE inline U widen(H v) { return __builtin_convertvector(v, U); }
PTO_INLINE inline I widen(SH v) { return __builtin_convertvector(v, I); }
PTO_INLINE inline U widen(B v) { return widen(__builtin_convertvector(v, H)); }
PTO_INLINE inline I widen(SB v) { return widen(__builtin_convertvector(v, SH)); }
PTO_INLINE inline H narrow_16(U v) { return __builtin_convertvector(v, H); }
PTO_INLINE inline H high_16(U v) { return narrow_16(v >> 16); }
PTO_INLINE inline B narrow_8(U v) { return __builtin_convertvector(v, B); }
#endif

template <class N>
PTO_INLINE inline F load(const float* p, N n) {
  return get<F>(p, n);
}
template <class N>
PTO_INLINE inline I load(const int32_t* p, N n) {
  return get<I>(p, n);
}
template <class N>
PTO_INLINE inline F load(const Bf16* p, N n) {
  return (F)(widen(get<H>(p, n)) << 16);
}
template <class N>
PTO_INLINE inline F load(const F16* p, N n) {
  return widen_f16(get<H>(p, n));
}
template <class N>
PTO_INLINE inline L load(const int64_t* p, N n) {
  return get<L>(p, n);
}
template <class N>
PTO_INLINE inline U load(const uint32_t* p, N n) {
  return get<U>(p, n);
}
template <class N>
PTO_INLINE inline I load(const int16_t* p, N n) {
  return widen(get<SH>(p, n));
}
template <class N>
PTO_INLINE inline I load(const uint16_t* p, N n) {
  return (I)widen(get<H>(p, n));
}
template <class N>
PTO_INLINE inline I load(const int8_t* p, N n) {
  return widen(get<SB>(p, n));
}
template <class N>
PTO_INLINE inline I load(const uint8_t* p, N n) {
  return (I)widen(get<B>(p, n));
}
template <class N>
PTO_INLINE inline I load(const Bool* p, N n) {
  return (I)widen(get<B>(p, n)) != 0;
}

template <class N>
PTO_INLINE inline void store(float* p, F v, N n) {
  put(p, v, n);
}
template <class N>
PTO_INLINE inline void store(int32_t* p, I v, N n) {
  put(p, v, n);
}
template <class N>
PTO_INLINE inline void store(int64_t* p, L v, N n) {
  put(p, v, n);
}
template <class N>
PTO_INLINE inline void store(uint32_t* p, U v, N n) {
  put(p, v, n);
}
template <class N>
PTO_INLINE inline void store(int16_t* p, I v, N n) {
  put(p, narrow_16((U)v), n);
}
template <class N>
PTO_INLINE inline void store(uint16_t* p, I v, N n) {
  put(p, narrow_16((U)v), n);
}
template <class N>
PTO_INLINE inline void store(int8_t* p, I v, N n) {
  put(p, narrow_8((U)v), n);
}
template <class N>
PTO_INLINE inline void store(uint8_t* p, I v, N n) {
  put(p, narrow_8((U)v), n);
}
template <class N>
PTO_INLINE inline void store(Bf16* p, F v, N n) {
  put(p, high_16(bf16_bits(v)), n);
}
template <class N>
PTO_INLINE inline void store(F16* p, F v, N n) {
  put(p, narrow_f16(v), n);
}
template <class N>
PTO_INLINE inline void store(Bool* p, I v, N n) {
  put(p, narrow_8((U)v & 1), n);
}

/// What `store` leaves in memory, for lanes that are values of the element type already.
template <class T, class V, class N>
PTO_INLINE inline void store_exact(T* p, V v, N n) {
  store(p, v, n);
}
template <class N>
PTO_INLINE inline void store_exact(Bf16* p, F v, N n) {
  put(p, high_16((U)v), n);
}

/// Lanes that are not values of the element type yet: storing makes them so, in fewer instructions.
template <class V>
struct Unrounded {
  V value;
};
template <class V>
Unrounded(V) -> Unrounded<V>;

template <class T, class V, class N>
PTO_INLINE inline void store_exact(T* p, Unrounded<V> v, N n) {
  store(p, v.value, n);
}

/// Whole vectors go past the caches if `streams`. The jumps are on that side: memory bounds it anyway.
template <class T, class V>
PTO_INLINE inline void store_exact(T* p, V v, Full n, bool streams) {
  if (__builtin_expect(streams, 0)) {
    store_exact(p, v, Past{});
  } else {
    store_exact(p, v, n);
  }
}
template <class T, class V>
PTO_INLINE inline void store_exact(T* p, V v, Tail n, bool) {
  store_exact(p, v, n);
}
template <class T, class V>
PTO_INLINE inline void store_exact(T* p, V v, Upto n, bool streams) {
  if (__builtin_expect(streams, 0) && n.is_full()) {
    store_exact(p, v, Past{});
  } else {
    store_exact(p, v, n);
  }
}

/// One element of memory in every lane.
PTO_INLINE inline F load_splat(const float* p) { return splat(*p); }
PTO_INLINE inline L load_splat(const int64_t* p) { return splat(*p); }
PTO_INLINE inline U load_splat(const uint32_t* p) { return splat(*p); }
template <class T>
PTO_INLINE inline I load_splat(const T* p) {
  return splat(static_cast<int32_t>(*p));
}
PTO_INLINE inline F load_splat(const Bf16* p) { return (F)(U{} + (static_cast<uint32_t>(p->bits) << 16)); }
PTO_INLINE inline F load_splat(const F16* p) { return widen_f16(H{} + p->bits); }
PTO_INLINE inline I load_splat(const Bool* p) { return splat(p->bits != 0); }

/// Lanes beyond a tail replaced by `identity`.
template <class V>
PTO_INLINE inline V keep(V v, Full, V) {
  return v;
}
template <class V>
PTO_INLINE inline V keep(V v, Tail n, V identity) {
  return lane_numbers() < static_cast<int32_t>(n.n) ? v : identity;
}
PTO_INLINE inline L keep(L v, Tail n, L identity) {
  return __builtin_convertvector(lane_numbers(), L) < n.n ? v : identity;
}

template <class V>
PTO_INLINE inline V keep(V v, Upto n, V identity) {
  return n.is_full() ? v : keep(v, Tail{n.n}, identity);
}

// --- folding the lanes of a vector, always in the same order ----------------------------------------------

#if PTO_LANES == 16
#define PTO_ROTATE_8(v) __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)
#define PTO_ROTATE_4(v) __builtin_shufflevector(v, v, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3)
#define PTO_ROTATE_2(v) __builtin_shufflevector(v, v, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1)
#define PTO_ROTATE_1(v) __builtin_shufflevector(v, v, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0)
#elif PTO_LANES == 8
#define PTO_ROTATE_4(v) __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3)
#define PTO_ROTATE_2(v) __builtin_shufflevector(v, v, 2, 3, 4, 5, 6, 7, 0, 1)
#define PTO_ROTATE_1(v) __builtin_shufflevector(v, v, 1, 2, 3, 4, 5, 6, 7, 0)
#else
#define PTO_ROTATE_2(v) __builtin_shufflevector(v, v, 2, 3, 0, 1)
#define PTO_ROTATE_1(v) __builtin_shufflevector(v, v, 1, 2, 3, 0)
#endif

/// The fold of all lanes of `v` by `op`, in every lane.
template <class V, class Op>
PTO_INLINE inline V fold(V v, const Op& op) {
#if PTO_LANES >= 16
  v = op(v, (V)PTO_ROTATE_8(v));
#endif
#if PTO_LANES >= 8
  v = op(v, (V)PTO_ROTATE_4(v));
#endif
  v = op(v, (V)PTO_ROTATE_2(v));
  return op(v, (V)PTO_ROTATE_1(v));
}

}  // namespace pto::wsp::tile
