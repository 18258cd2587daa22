CREATE TABLE IF NOT EXISTS llama_bench (
  build_commit TEXT,
  avg_ns INTEGER
);

INSERT INTO llama_bench (build_commit, model_type, model_size, model_n_params, n_batch, n_ubatch, n_prompt, n_gen, n_depth, avg_ns, stddev_ns) VALUES ('0a1b2c3d', 'llama 7B Q4_0', '3825065984', '6738415616', '2048', '512', '0', '128', '0', '3200000000', '1000000');
