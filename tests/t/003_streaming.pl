# Each variant streams to the next one, archives, and is streamed to: what arrives
# is the same, pg_waldump reads all of it, and no WAL receiver uses O_DIRECT.

use strict;
use warnings FATAL => 'all';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WalLab;

# Write a table, in several segments.
my $fill = q{
INSERT INTO t SELECT i, repeat(md5(i::text), 10) FROM generate_series(1, 4000) i;
SELECT pg_switch_wal();
INSERT INTO t SELECT i, repeat(md5(i::text), 10) FROM generate_series(4001, 8000) i;
};
my $sum = 'SELECT count(*), sum(hashtext(i || pad)) FROM t';

# The method of the variant that differs most from the default.
sub telling_method
{
	my ($variant) = @_;

	return $variant =~ /^(direct-io|both)$/
	  ? 'open_datasync_direct'
	  : 'open_datasync';
}

my @variants = variants();
foreach my $i (0 .. $#variants)
{
	my $variant = $variants[$i];
	my $other = $variants[ ($i + 1) % @variants ];
	my $primary = new_node(
		"primary-$variant", $variant,
		wal_buffers => 16,
		archive_mode => 'on',
		wal_sync_method => telling_method($variant));
	$primary->backup_fs_cold('b') if $primary->pg_version < 17;
	$primary->start;
	my $start = $primary->safe_psql('postgres',
		'SELECT pg_switch_wal(); SELECT pg_current_wal_insert_lsn()');
	($start) = $start =~ /(\S+)$/;
	$primary->safe_psql('postgres', 'CREATE TABLE t (i int, pad text)');

	# A standby must have at least the primary's connections, and initdb thinks
	# of 100.
	my $name = "standby-$variant-$other";
	my $standby;
	if ($primary->pg_version >= 17)
	{
		# Both are copies of the same empty cluster.
		$standby = new_node($name, $other, max_connections => 100);
		$standby->enable_streaming($primary);
	}
	else
	{
		$standby = PostgreSQL::Test::Cluster->new($name,
			install_path => "$ENV{WALLAB_SERVERS}/$other");
		$standby->init_from_backup($primary, 'b', has_streaming => 1);
		$standby->append_conf('postgresql.conf', 'max_connections = 100');
	}
	$standby->append_conf(
		'postgresql.conf', q{
archive_mode = off
wal_sync_method = } . telling_method($other));
	$standby->start;

	$primary->safe_psql('postgres', $fill);
	$primary->wait_for_catchup($standby);
	my $expected = $primary->safe_psql('postgres', $sum);
	is($standby->safe_psql('postgres', $sum),
		$expected, "$variant to $other: the standby has it all");

	my $receiver =
	  $standby->safe_psql('postgres', 'SELECT pid FROM pg_stat_wal_receiver');
	my $flags = expected_flags($other, telling_method($other));
	is( fd_flags($receiver),
		$flags =~ s/O_DIRECT\|//r,
		"$variant to $other: flags of the WAL receiver");

	# All that is archived can be read, and so can what the standby has.
	my $segment = $primary->safe_psql('postgres',
		'SELECT pg_walfile_name(pg_current_wal_lsn())');
	my $end =
	  $primary->safe_psql('postgres', 'SELECT pg_current_wal_flush_lsn()');
	$primary->wait_for_catchup($standby);
	$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
	$primary->poll_query_until('postgres',
		"SELECT last_archived_wal >= '$segment' FROM pg_stat_archiver")
	  or die "$segment was not archived";
	wal_dump_ok($primary, $primary->archive_dir, $start, $end,
		"$variant: pg_waldump reads the archive");
	my $received = $standby->safe_psql('postgres',
		q{SELECT redo_lsn FROM pg_control_checkpoint()});
	wal_dump_ok($standby, $standby->data_dir . '/pg_wal',
		$received, $end,
		"$variant to $other: pg_waldump reads what was received");

	# The standby writes as its variant does once it is a primary.
	$primary->stop('immediate');
	$standby->promote;
	$standby->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()')
	  or die 'the standby was not promoted';
	my $session = open_session($standby);
	ask($session, $fill =~ s/SELECT pg_switch_wal\(\);//r);
	is(fd_flags($session->{pid}), $flags, "$other: flags after promotion");
	close_session($session);
	$expected = $standby->safe_psql('postgres', $sum);
	$standby->stop('immediate');
	recover($standby);
	is($standby->safe_psql('postgres', $sum),
		$expected, "$other: recovered what was written after promotion");
	$standby->stop('immediate');
}

done_testing();
