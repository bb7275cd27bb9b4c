# For every variant and wal_sync_method: how WAL files are opened, written and
# synced, as the kernel and strace see it, and that the statistics say the same.

use strict;
use warnings FATAL => 'all';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WalLab;

my $segment_size = 1024 * 1024;
my $ring_size = 64 * $PAGE;

# Of three and a half pages each: together more than the buffers, so that one of
# them is on both sides of the buffers' end, and less than a segment.
my $commits = 22;
my $size = int(3.5 * $PAGE);

foreach my $variant (variants())
{
	my $node = new_node("calls-$variant", $variant, wal_buffers => 64);
	my $traced = start_traced($node);
	my $major = $node->pg_version->major;

	foreach my $method (methods_of($node))
	{
		my $what = "$variant, $method";
		set_method($node, $method);
		my $session = open_session($node);
		my $seen = measure($traced, $session, $commits, $size, $segment_size);
		my $flags = expected_flags($variant, $method);

		is(fd_flags($session->{pid}), $flags, "$what: flags in /proc");
		is($seen->{opened}, $flags, "$what: flags in open()");

		# Each flush, write by write.
		my @flushed = @{ $seen->{flushed} };
		my @expected =
		  map {
			expected_writes($variant, $flushed[ $_ - 1 ],
				$flushed[$_], $ring_size, $segment_size)
		  } (1 .. $#flushed);
		my @writes = grep { $_->{call} eq 'write' } @{ $seen->{calls} };
		is_deeply([ map { [ $_->{position}, $_->{size} ] } @writes ],
			\@expected, "$what: position and size of each write");

		my $syncs = grep { $_->{call} =~ /^f/ } @{ $seen->{calls} };
		my ($call) = $method =~ /^(fsync|fdatasync)/;
		is( $syncs,
			syncs_writes($method) ? 0 : $commits,
			"$what: number of syncs");
		is( scalar(
				grep { $_->{call} =~ /^f/ && $_->{call} ne $call }
				  @{ $seen->{calls} }),
			0,
			"$what: all of them by $call") if $call;

		# The statistics of a single process exist since 18.
		my $bytes = 0;
		$bytes += $_->{size} foreach @writes;
		my ($stat_writes, $stat_bytes, $stat_syncs) =
		  @{ $seen->{statistics} };
		if ($major >= 18)
		{
			is_deeply(
				[ $stat_writes, $stat_bytes, $stat_syncs ],
				[ scalar @writes, $bytes, $syncs ],
				"$what: statistics agree with strace");
		}
		else
		{
			cmp_ok($stat_writes, '>=', @writes,
				"$what: statistics have all writes");
			cmp_ok(
				$stat_writes, '<=',
				@writes + $seen->{others},
				"$what: statistics have no others");
			cmp_ok($stat_syncs, '>=', $syncs,
				"$what: statistics have all syncs");
		}
		note sprintf '%s: %d flushes, %.2f writes a flush, %.1f kB a write',
		  $what, $commits, @writes / $commits, $bytes / @writes / 1024;
		close_session($session);
	}
	stop_traced($traced, 'fast');
}

done_testing();
