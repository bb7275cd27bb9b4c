-- Clause 3.3.2: each line is the number of the condition, and how many rows break it. Condition 11
-- holds of the initial population alone.
SELECT 1, count(*) FROM tpcc.warehouse
WHERE w_ytd <> (SELECT sum(d_ytd) FROM tpcc.district WHERE d_w_id = w_id)
UNION ALL
SELECT 2, count(*) FROM tpcc.district
LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS o FROM tpcc.orders GROUP BY 1, 2) a
  ON o_w_id = d_w_id AND o_d_id = d_id
LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS n FROM tpcc.new_order GROUP BY 1, 2) b
  ON no_w_id = d_w_id AND no_d_id = d_id
WHERE d_next_o_id - 1 <> o OR n <> o
UNION ALL
SELECT 3, count(*) FROM (SELECT FROM tpcc.new_order GROUP BY no_w_id, no_d_id
                         HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)) t
UNION ALL
SELECT 4, count(*) FROM
  (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS n FROM tpcc.orders GROUP BY 1, 2) a
  FULL JOIN (SELECT ol_w_id, ol_d_id, count(*) AS n FROM tpcc.order_line GROUP BY 1, 2) b
  ON o_w_id = ol_w_id AND o_d_id = ol_d_id WHERE a.n IS DISTINCT FROM b.n
UNION ALL
SELECT 5, count(*) FROM tpcc.orders
LEFT JOIN tpcc.new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)
UNION ALL
SELECT 6, count(*) FROM tpcc.orders
FULL JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, count(*) AS n FROM tpcc.order_line GROUP BY 1, 2, 3) t
  ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
WHERE o_ol_cnt IS DISTINCT FROM n
UNION ALL
SELECT 7, count(*) FROM tpcc.order_line
JOIN tpcc.orders ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
WHERE (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)
UNION ALL
SELECT 8, count(*) FROM tpcc.warehouse
WHERE w_ytd <> (SELECT sum(h_amount) FROM tpcc.history WHERE h_w_id = w_id)
UNION ALL
SELECT 9, count(*) FROM tpcc.district
JOIN (SELECT h_w_id, h_d_id, sum(h_amount) AS paid FROM tpcc.history GROUP BY 1, 2) t
  ON h_w_id = d_w_id AND h_d_id = d_id WHERE d_ytd <> paid
UNION ALL
SELECT 10, count(*) FROM tpcc.customer
LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS got FROM tpcc.orders
           JOIN tpcc.order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
           WHERE ol_delivery_d IS NOT NULL GROUP BY 1, 2, 3) a
  ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id
LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM tpcc.history
           GROUP BY 1, 2, 3) b
  ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id
WHERE c_balance <> coalesce(got, 0) - coalesce(paid, 0)
UNION ALL
SELECT 12, count(*) FROM tpcc.customer
LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS got FROM tpcc.orders
           JOIN tpcc.order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
           WHERE ol_delivery_d IS NOT NULL GROUP BY 1, 2, 3) a
  ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id
WHERE c_balance + c_ytd_payment <> coalesce(got, 0)
