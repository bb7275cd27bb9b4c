# The ends of the WAL buffers and of segments: what a flush writes where they are
# met often, and that it can be read, and recovered from, afterwards.

use strict;
use warnings FATAL => 'all';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WalLab;

my $segment_size = 1024 * 1024;

# Compare each write of a number of commits with what it ought to be; return how
# many writes a flush takes.
sub check_writes
{
	my ($node, $variant, $buffers, $commits, $size) = @_;
	my $what = "$variant, $buffers buffers";

	$node->adjust_conf('postgresql.conf', 'wal_buffers', $buffers);
	my $traced = start_traced($node);
	my $session = open_session($node);
	my $seen = measure($traced, $session, $commits, $size, $segment_size);
	check_evictions($traced, $session, $what) if $buffers == 4;
	close_session($session);
	stop_traced($traced, 'fast');

	my @flushed = @{ $seen->{flushed} };
	my @expected =
	  map {
		expected_writes(
			$variant, $flushed[ $_ - 1 ], $flushed[$_],
			$buffers * $PAGE, $segment_size)
	  } (1 .. $#flushed);
	my @writes = grep { $_->{call} eq 'write' } @{ $seen->{calls} };
	is_deeply([ map { [ $_->{position}, $_->{size} ] } @writes ],
		\@expected, "$what: position and size of each write");
	cmp_ok($flushed[-1] - $flushed[0],
		'>', $segment_size, "$what: over the end of a segment");
	note sprintf '%s: %d flushes, %.2f writes a flush', $what, $commits,
	  @writes / $commits;
	return @writes / $commits;
}

# Commits of more than the smallest buffers hold: what has to go to make room is asked for page by page,
# whatever the variant, so that only the commit's own flush can gather, what the buffers hold at most.
sub check_evictions
{
	my ($traced, $session, $what) = @_;
	my ($commits, $pages) = (5, 50);

	my $seen =
	  measure($traced, $session, $commits, $pages * $PAGE, $segment_size);
	my @sizes =
	  map { $_->{size} / $PAGE }
	  grep { $_->{call} eq 'write' } @{ $seen->{calls} };
	my $single = grep { $_ == 1 } @sizes;
	note "$what: @sizes";
	cmp_ok(
		$single, '>=',
		$commits * ($pages - 4),
		"$what: pages that make room are written one by one");
	cmp_ok(
		@sizes - $single,
		'<=',
		2 * $commits,
		"$what: the flush alone gathers, in two writes at most");
	return;
}

my %writes_per_flush;
foreach my $variant (variants())
{
	my $node = new_node(
		"small-$variant", $variant,
		wal_buffers => 4,
		wal_sync_method => 'open_datasync');

	# The smallest buffers there can be have room for each of these commits.
	check_writes($node, $variant, 4, 70, int(2.4 * $PAGE));

	# The thread's 512 kB, with the commits of a busy server.
	$writes_per_flush{$variant} =
	  check_writes($node, $variant, 64, 20, 20 * $PAGE);

	# Much more than the smallest buffers hold, so that there is no commit
	# without writes to make room; then crash.
	$node->adjust_conf('postgresql.conf', 'wal_buffers', 4);
	$node->start;
	my $start =
	  $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
	$node->safe_psql(
		'postgres', q{
CREATE TABLE t (i int, pad text);
INSERT INTO t SELECT i, repeat(md5(i::text), 10) FROM generate_series(1, 5000) i;
SELECT pg_switch_wal();
INSERT INTO t SELECT i, repeat(md5(i::text), 10) FROM generate_series(5001, 10000) i;
});
	my $sum = 'SELECT count(*), sum(hashtext(i || pad)) FROM t';
	my $expected = $node->safe_psql('postgres', $sum);
	my $end =
	  $node->safe_psql('postgres', 'SELECT pg_current_wal_flush_lsn()');
	$node->stop('immediate');
	wal_dump_ok($node, $node->data_dir . '/pg_wal',
		$start, $end, "$variant: pg_waldump reads all of it");
	recover($node);
	is($node->safe_psql('postgres', $sum),
		$expected, "$variant: all rows are back after a crash");
	$node->stop('immediate');
}

# What gathering is worth, to the buffers' end and across it, all of it by counts.
if (4 == grep { exists $writes_per_flush{$_} }
	qw(stock gather-ring gather-write baseline))
{
	cmp_ok(
		$writes_per_flush{'gather-ring'},
		'<',
		$writes_per_flush{stock},
		'gather-ring takes fewer writes than stock');
	is( $writes_per_flush{'gather-write'},
		$writes_per_flush{stock},
		'gather-write takes as many as stock');
	cmp_ok(
		$writes_per_flush{stock},
		'<',
		$writes_per_flush{baseline},
		'and stock takes fewer than page by page');
}

done_testing();
