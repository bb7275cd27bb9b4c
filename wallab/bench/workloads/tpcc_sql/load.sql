-- The initial population (clause 4.3.3) of {warehouses} warehouses. Same call, same content but for
-- the times. Texts have the clause's lengths on average.
SET search_path = tpcc;
SET synchronous_commit = off;
SELECT setseed(0.2005);

INSERT INTO item
SELECT i, uniform(1, 10000), left(md5(i::text), 19), uniform(100, 10000) / 100.0,
       CASE WHEN i % 10 = 0 THEN 'ORIGINAL' ELSE '' END || left(md5(i::text) || md5((-i)::text), 38)
FROM generate_series(1, 100000) i;

INSERT INTO warehouse
SELECT w, left(md5(w::text), 8), left(md5(w::text), 15), left(md5(w::text), 15),
       left(md5(w::text), 15), 'AB', '123411111', uniform(0, 2000) / 10000.0, 300000
FROM generate_series(1, {warehouses}) w;

INSERT INTO district
SELECT d, w, left(md5(d::text), 8), left(md5(d::text), 15), left(md5(d::text), 15),
       left(md5(d::text), 15), 'AB', '123411111', uniform(0, 2000) / 10000.0, 30000, 3001
FROM generate_series(1, {warehouses}) w, generate_series(1, 10) d;

INSERT INTO stock
SELECT i, w, uniform(10, 100), repeat(md5(i::text || w), 8), 0, 0, 0,
       CASE WHEN i % 10 = 0 THEN 'ORIGINAL' ELSE '' END || left(md5(i::text) || md5(w::text), 38)
FROM generate_series(1, {warehouses}) w, generate_series(1, 100000) i;

INSERT INTO customer
SELECT c, d, w, left(md5(c::text), 12), 'OE',
       last_name(CASE WHEN c <= 1000 THEN c - 1 ELSE nurand(255, 0, 999, 123) END),
       left(md5(c::text), 15), left(md5(c::text), 15), left(md5(c::text), 15), 'AB', '123411111',
       '1234567890123456', now(), CASE WHEN uniform(1, 10) = 1 THEN 'BC' ELSE 'GC' END, 50000,
       uniform(0, 5000) / 10000.0, -10, 10, 1, 0, repeat(md5(c::text || d), 12)
FROM generate_series(1, {warehouses}) w, generate_series(1, 10) d, generate_series(1, 3000) c;

INSERT INTO history
SELECT c_id, c_d_id, c_w_id, c_d_id, c_w_id, now(), 10, left(md5(c_id::text), 18) FROM customer;

-- 1001 and 3000 have no common divisor, so that every customer has one order.
INSERT INTO orders
SELECT o, d, w, o * 1001 % 3000 + 1, now(), CASE WHEN o < 2101 THEN uniform(1, 10) END,
       uniform(5, 15), 1
FROM generate_series(1, {warehouses}) w, generate_series(1, 10) d, generate_series(1, 3000) o;

INSERT INTO order_line
SELECT o_id, o_d_id, o_w_id, n, uniform(1, 100000), o_w_id,
       CASE WHEN o_id < 2101 THEN o_entry_d END, 5,
       CASE WHEN o_id < 2101 THEN 0 ELSE uniform(1, 999999) / 100.0 END, left(md5(o_id::text), 24)
FROM orders, generate_series(1, o_ol_cnt) n;

INSERT INTO new_order SELECT o_id, o_d_id, o_w_id FROM orders WHERE o_id >= 2101;

ALTER TABLE warehouse ADD PRIMARY KEY (w_id);
ALTER TABLE district ADD PRIMARY KEY (d_w_id, d_id);
ALTER TABLE customer ADD PRIMARY KEY (c_w_id, c_d_id, c_id);
ALTER TABLE new_order ADD PRIMARY KEY (no_w_id, no_d_id, no_o_id);
ALTER TABLE orders ADD PRIMARY KEY (o_w_id, o_d_id, o_id);
ALTER TABLE order_line ADD PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number);
ALTER TABLE item ADD PRIMARY KEY (i_id);
ALTER TABLE stock ADD PRIMARY KEY (s_w_id, s_i_id);
CREATE INDEX ON customer (c_w_id, c_d_id, c_last, c_first);
CREATE INDEX ON orders (o_w_id, o_d_id, o_c_id, o_id);
