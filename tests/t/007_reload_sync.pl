# wal_sync_method changes while a long statement has written WAL that nobody has synced: when another
# session's commit is reported, the kernel has been asked to sync it, from each method that syncs by a
# call to each that syncs by writing.

use strict;
use warnings FATAL => 'all';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use WalLab;

my $segment_size = 1024 * 1024;

# More than the WAL buffers hold, so that the statement has to write some of it.
my $long_statement = q{
DO $$
BEGIN
  PERFORM pg_logical_emit_message(true, 'wallab', repeat('x', 8000))
    FROM generate_series(1, 40);
  PERFORM pg_advisory_xact_lock(1);
END $$;
};

# Have a session begin the long statement, and wait until it waits for the lock.
sub begin_statement
{
	my ($writer, $observer) = @_;

	$writer->{in} .= $long_statement;
	for (1 .. 1200)
	{
		$writer->{run}->pump_nb;
		return
		  if ask($observer,
				q{SELECT count(*) FROM pg_locks }
			  . q{WHERE locktype = 'advisory' AND NOT granted});
		usleep(50_000);
	}
	die 'the statement did not come to the lock';
}

# How often any process has synced WAL between two times.
sub syncs_between
{
	my ($traced, $from, $to) = @_;
	my $syncs = 0;

	foreach my $file (glob "$traced->{file}.*")
	{
		my ($pid) = $file =~ /\.(\d+)$/;
		$syncs += grep {
			$_->{call} =~ /^f/ && $_->{time} > $from && $_->{time} < $to
		} wal_calls($traced, $pid, $segment_size);
	}
	return $syncs;
}

foreach my $variant (variants())
{
	my $node = new_node("reload-$variant", $variant, wal_buffers => 8);
	my $traced = start_traced($node);
	my $observer = open_session($node);
	my @methods = methods_of($node);

	foreach my $old (grep { !syncs_writes($_) } @methods)
	{
		foreach my $new (grep { syncs_writes($_) } @methods)
		{
			my $what = "$variant, $old to $new";

			set_method($node, $old);
			my $writer = open_session($node);
			ask($observer, 'SELECT pg_switch_wal()');
			ask($observer, 'SELECT pg_advisory_lock(1)');
			begin_statement($writer, $observer);
			set_method($node, $new);
			my $session = open_session($node);
			ask($session, q{
SELECT pg_logical_emit_message(true, 'wallab', 'x');
SELECT pg_stat_file('wallab-end', true)});

			my @writes = grep { $_->{call} eq 'write' }
			  wal_calls($traced, $writer->{pid}, $segment_size);
			my ($end) = grep { $_->{call} eq 'end' }
			  wal_calls($traced, $session->{pid}, $segment_size);
			my $syncs =
			  syncs_between($traced, $writes[-1]{time}, $end->{time});
			if (is_mended($variant))
			{
				cmp_ok($syncs, '>=', 1, "$what: WAL of others was synced");
			}
			else
			{
				note "$what: $syncs syncs of what others wrote";
			}
			ask($observer, 'SELECT pg_advisory_unlock(1)');
			close_session($_) foreach $session, $writer;
		}
	}
	close_session($observer);
	stop_traced($traced, 'fast');
}

done_testing();
