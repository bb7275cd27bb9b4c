-- The nine tables of TPC-C (clause 1.3), and where the clients note their response times.
CREATE SCHEMA tpcc;
SET search_path = tpcc;

CREATE TABLE warehouse (
  w_id int, w_name text, w_street_1 text, w_street_2 text, w_city text, w_state text, w_zip text,
  w_tax numeric(4, 4), w_ytd numeric(12, 2)) WITH (fillfactor = 10);
CREATE TABLE district (
  d_id int, d_w_id int, d_name text, d_street_1 text, d_street_2 text, d_city text, d_state text,
  d_zip text, d_tax numeric(4, 4), d_ytd numeric(12, 2), d_next_o_id int) WITH (fillfactor = 10);
CREATE TABLE customer (
  c_id int, c_d_id int, c_w_id int, c_first text, c_middle text, c_last text, c_street_1 text,
  c_street_2 text, c_city text, c_state text, c_zip text, c_phone text, c_since timestamp,
  c_credit text, c_credit_lim numeric(12, 2), c_discount numeric(4, 4), c_balance numeric(12, 2),
  c_ytd_payment numeric(12, 2), c_payment_cnt int, c_delivery_cnt int, c_data text);
CREATE TABLE history (
  h_c_id int, h_c_d_id int, h_c_w_id int, h_d_id int, h_w_id int, h_date timestamp,
  h_amount numeric(6, 2), h_data text);
CREATE TABLE new_order (no_o_id int, no_d_id int, no_w_id int);
CREATE TABLE orders (
  o_id int, o_d_id int, o_w_id int, o_c_id int, o_entry_d timestamp, o_carrier_id int, o_ol_cnt int,
  o_all_local int);
CREATE TABLE order_line (
  ol_o_id int, ol_d_id int, ol_w_id int, ol_number int, ol_i_id int, ol_supply_w_id int,
  ol_delivery_d timestamp, ol_quantity int, ol_amount numeric(6, 2), ol_dist_info text);
CREATE TABLE item (i_id int, i_im_id int, i_name text, i_price numeric(5, 2), i_data text);
CREATE TABLE stock (
  s_i_id int, s_w_id int, s_quantity int, s_dist text, s_ytd int, s_order_cnt int, s_remote_cnt int,
  s_data text);

CREATE UNLOGGED TABLE answer (kind text, at float8, seconds float8);

-- Note an answer to what was asked at that time (microseconds since 1970).
CREATE FUNCTION answered(kind text, begun bigint) RETURNS void LANGUAGE sql VOLATILE AS
$$ INSERT INTO tpcc.answer SELECT kind, t, t - begun / 1000000.0
   FROM (SELECT extract(epoch FROM clock_timestamp())::float8) AS clock (t) $$;

-- Clause 2.1.6: NURand(A, x, y) with the constant C.
CREATE FUNCTION nurand(a int, x int, y int, c int) RETURNS int LANGUAGE sql VOLATILE AS
$$ SELECT (((floor(random() * (a + 1))::int | (x + floor(random() * (y - x + 1))::int)) + c)
           % (y - x + 1)) + x $$;

CREATE FUNCTION uniform(x int, y int) RETURNS int LANGUAGE sql VOLATILE AS
$$ SELECT x + floor(random() * (y - x + 1))::int $$;

-- Clause 4.3.2.3.
CREATE FUNCTION last_name(number int) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT s[number / 100 + 1] || s[number / 10 % 10 + 1] || s[number % 10 + 1]
   FROM (SELECT '{BAR,OUGHT,ABLE,PRI,PRES,ESE,ANTI,CALLY,ATION,EING}'::text[]) AS t (s) $$;
