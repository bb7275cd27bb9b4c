# Settings that have a say in how WAL files are made or opened, with each variant:
# the flags are right, and what was written survives a crash.

use strict;
use warnings FATAL => 'all';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WalLab;

foreach my $variant (variants())
{
	my $node = new_node("settings-$variant", $variant, wal_buffers => 16);
	my $major = $node->pg_version->major;
	my $method =
	  $variant =~ /^(direct-io|both)$/ ? 'open_direct' : 'open_sync';
	my $flags = expected_flags($variant, $method);
	$node->adjust_conf('postgresql.conf', 'wal_sync_method', $method);
	$node->start;
	$node->safe_psql('postgres', 'CREATE TABLE t (i int, pad text)');
	$node->stop;

	# Without fsync there's no sync flag.  A method that is direct by its name
	# remains so; what was committed in 2005 does not.
	my @cases = (
		[ 'fsync = off', $method =~ /_direct$/ ? 'O_DIRECT' : '' ],
		[ "fsync = on\nwal_init_zero = off\nwal_recycle = off", $flags ]);
	push @cases, [ "fsync = on\ndebug_io_direct = wal", 'O_DIRECT|O_SYNC' ]
	  if $major >= 16;

	my $rows = 0;
	foreach my $case (@cases)
	{
		my ($settings, $expected) = @$case;
		my $what = "$variant, " . $settings =~ s/\n/, /gr;
		$node->append_conf('postgresql.conf', $settings);
		$node->start;
		my $session = open_session($node);
		ask($session, q{
INSERT INTO t SELECT i, repeat(md5(i::text), 10) FROM generate_series(1, 4000) i;
CHECKPOINT;
INSERT INTO t SELECT i, repeat(md5(i::text), 10) FROM generate_series(1, 4000) i}
		);
		is(fd_flags($session->{pid}), $expected, "$what: flags");
		close_session($session);
		$rows += 8000;
		$node->stop('immediate');
		recover($node);
		is($node->safe_psql('postgres', 'SELECT count(*) FROM t'),
			$rows, "$what: all rows are back after a crash");
		$node->stop;
	}
}

done_testing();
