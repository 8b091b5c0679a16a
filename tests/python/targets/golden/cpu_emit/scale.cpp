int32_t k_scale([[maybe_unused]] const View* views, [[maybe_unused]] const Scalar* scalars, [[maybe_unused]] const TaskContext* context) {
  [[maybe_unused]] const View& p_x = views[0];
  [[maybe_unused]] const View& p_y = views[1];
  const StoreFence fence(views[1].streams);
  [[maybe_unused]] float s_factor = scalars[0].f32;
  [[maybe_unused]] Tile<float> t_x0{};
  [[maybe_unused]] Tile<float> t_t0{};
  const Window<float> w1{static_cast<float*>(p_x.data), p_x.stride[0], 1, p_x.rows, p_x.shape[0], p_x.shape[1]};
  t_x0 = borrow(w1, at<float>(context, 0), 128);
  {
    const F c2 = splat(static_cast<float>(s_factor));
    t_t0 = {nullptr, 0, t_x0.rows, t_x0.cols};
    int64_t rows = t_t0.rows;
    int64_t cols = t_t0.cols;
    const Window<float> w3{static_cast<float*>(p_y.data), p_y.stride[0], 1, p_y.rows, p_y.shape[0], p_y.shape[1], p_y.streams};
    if (t_t0.rows != w3.rows || t_t0.cols != w3.cols) return 1;
    shield(t_x0, w3, true, at<float>(context, 0), 128);
    flatten(rows, cols, t_x0, w3);
    for (int64_t i = 0; i < rows; ++i) {
      float* const r_x0 = t_x0.row(i);
      float* const w3_row = w3.row(i);
      in_parts(w3.lead(w3_row, cols), cols, [&](int64_t first, int64_t count) PTO_INLINE {
        const bool w3_past = w3.streams_at(w3_row + first);
        columns<2>(count, [&](int64_t k, auto n) PTO_INLINE {
          const int64_t j = first + k;
          const F v_x0_0 = load(r_x0 + j, n);
          const F v_t0_1 = mul(v_x0_0, c2);
          store_exact(w3_row + j, v_t0_1, n, w3_past);
        });
      });
    }
  }
  return 0;
}
