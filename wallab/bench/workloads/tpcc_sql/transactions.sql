-- The five transactions of TPC-C (clauses 2.4 to 2.8); each chooses its own input.
SET search_path = tpcc;

-- The id of a customer, 60% by last name: of those with that name the one in the middle (2.5.2.2).
CREATE FUNCTION some_customer(w int, d int) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  found_id int;
BEGIN
  IF random() < 0.6 THEN
    SELECT ids[(cardinality(ids) + 1) / 2] INTO found_id
    FROM (SELECT array_agg(c_id ORDER BY c_first) AS ids FROM tpcc.customer
          WHERE c_w_id = w AND c_d_id = d
            AND c_last = tpcc.last_name(tpcc.nurand(255, 0, 999, 208))) t;
  END IF;
  RETURN coalesce(found_id, tpcc.nurand(1023, 1, 3000, 259));
END $$;

-- True, or false for the 1% that name an item that there is not, and roll back (2.4.1.4).
CREATE FUNCTION new_order(w int, warehouses int) RETURNS bool LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  d int := tpcc.uniform(1, 10);
  c int := tpcc.nurand(1023, 1, 3000, 259);
  lines int := tpcc.uniform(5, 15);
  o int;
  line record;
  taken int;
  dist text;
  bad bool := random() < 0.01;
  all_local int := 1;
  number int := 0;
BEGIN
  UPDATE tpcc.district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = w AND d_id = d
  RETURNING d_next_o_id - 1 INTO o;
  PERFORM w_tax FROM tpcc.warehouse WHERE w_id = w;
  PERFORM c_discount, c_last, c_credit FROM tpcc.customer
  WHERE c_w_id = w AND c_d_id = d AND c_id = c;
  INSERT INTO tpcc.orders VALUES (o, d, w, c, clock_timestamp(), NULL, lines, 1);
  INSERT INTO tpcc.new_order VALUES (o, d, w);
  -- In the order of the keys, so that no two wait for each other.
  FOR line IN
    SELECT i_id, i_price, quantity, supply
    FROM (SELECT tpcc.nurand(8191, 1, 100000, 7911) AS item, tpcc.uniform(1, 10) AS quantity,
                 CASE WHEN warehouses > 1 AND random() < 0.01
                      THEN (w + tpcc.uniform(0, warehouses - 2)) % warehouses + 1 ELSE w END
                 AS supply
          FROM generate_series(1, lines)) wanted
    JOIN tpcc.item ON i_id = item
    ORDER BY supply, i_id
  LOOP
    number := number + 1;
    UPDATE tpcc.stock
    SET s_quantity = s_quantity - line.quantity
                     + CASE WHEN s_quantity >= line.quantity + 10 THEN 0 ELSE 91 END,
        s_ytd = s_ytd + line.quantity, s_order_cnt = s_order_cnt + 1,
        s_remote_cnt = s_remote_cnt + (line.supply <> w)::int
    WHERE s_w_id = line.supply AND s_i_id = line.i_id
    RETURNING s_quantity, substr(s_dist, d * 24 - 23, 24) INTO taken, dist;
    IF line.supply <> w THEN
      all_local := 0;
    END IF;
    INSERT INTO tpcc.order_line
    VALUES (o, d, w, number, line.i_id, line.supply, NULL, line.quantity,
            line.quantity * line.i_price, dist);
  END LOOP;
  IF all_local = 0 THEN
    UPDATE tpcc.orders SET o_all_local = 0 WHERE o_w_id = w AND o_d_id = d AND o_id = o;
  END IF;
  IF bad THEN
    RAISE EXCEPTION 'no such item' USING ERRCODE = 'no_data_found';
  END IF;
  RETURN true;
EXCEPTION
  WHEN no_data_found THEN
    RETURN false;
END $$;

CREATE FUNCTION payment(w int, warehouses int) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  d int := tpcc.uniform(1, 10);
  amount numeric(6, 2) := tpcc.uniform(100, 500000) / 100.0;
  cw int := w;
  cd int := d;
  c int;
BEGIN
  IF warehouses > 1 AND random() < 0.15 THEN
    cw := (w + tpcc.uniform(0, warehouses - 2)) % warehouses + 1;
    cd := tpcc.uniform(1, 10);
  END IF;
  UPDATE tpcc.warehouse SET w_ytd = w_ytd + amount WHERE w_id = w;
  UPDATE tpcc.district SET d_ytd = d_ytd + amount WHERE d_w_id = w AND d_id = d;
  c := tpcc.some_customer(cw, cd);
  UPDATE tpcc.customer
  SET c_balance = c_balance - amount, c_ytd_payment = c_ytd_payment + amount,
      c_payment_cnt = c_payment_cnt + 1,
      c_data = CASE WHEN c_credit = 'BC'
               THEN left(concat_ws(' ', c, cd, cw, d, w, amount, c_data), 500) ELSE c_data END
  WHERE c_w_id = cw AND c_d_id = cd AND c_id = c;
  INSERT INTO tpcc.history VALUES (c, cd, cw, d, w, clock_timestamp(), amount, 'payment');
END $$;

CREATE FUNCTION order_status(w int) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  d int := tpcc.uniform(1, 10);
  c int := tpcc.some_customer(w, d);
BEGIN
  RETURN (SELECT count(ol_i_id) FROM tpcc.order_line
          WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id =
            (SELECT o_id FROM tpcc.orders WHERE o_w_id = w AND o_d_id = d AND o_c_id = c
             ORDER BY o_id DESC LIMIT 1));
END $$;

-- Delivers the oldest order of each district that has one; returns how many.
CREATE FUNCTION delivery(w int) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  carrier int := tpcc.uniform(1, 10);
  o int;
  c int;
  total numeric(12, 2);
  delivered int := 0;
BEGIN
  FOR d IN 1..10 LOOP
    DELETE FROM tpcc.new_order WHERE no_w_id = w AND no_d_id = d AND no_o_id =
      (SELECT no_o_id FROM tpcc.new_order WHERE no_w_id = w AND no_d_id = d
       ORDER BY no_o_id LIMIT 1 FOR UPDATE)
    RETURNING no_o_id INTO o;
    CONTINUE WHEN o IS NULL;
    UPDATE tpcc.orders SET o_carrier_id = carrier WHERE o_w_id = w AND o_d_id = d AND o_id = o
    RETURNING o_c_id INTO c;
    WITH lines AS (
      UPDATE tpcc.order_line SET ol_delivery_d = clock_timestamp()
      WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o RETURNING ol_amount)
    SELECT sum(ol_amount) INTO total FROM lines;
    UPDATE tpcc.customer SET c_balance = c_balance + total, c_delivery_cnt = c_delivery_cnt + 1
    WHERE c_w_id = w AND c_d_id = d AND c_id = c;
    delivered := delivered + 1;
  END LOOP;
  RETURN delivered;
END $$;

CREATE FUNCTION stock_level(w int) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  d int := tpcc.uniform(1, 10);
  threshold int := tpcc.uniform(10, 20);
  next int := (SELECT d_next_o_id FROM tpcc.district WHERE d_w_id = w AND d_id = d);
BEGIN
  RETURN (SELECT count(DISTINCT s_i_id) FROM tpcc.order_line
          JOIN tpcc.stock ON s_w_id = w AND s_i_id = ol_i_id
          WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id >= next - 20 AND ol_o_id < next
            AND s_quantity < threshold);
END $$;
