# Change wal_sync_method while others write, to each method and from each to the
# next; refuse what is no method; crash under load and recover.

use strict;
use warnings FATAL => 'all';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use WalLab;

my $patience = $PostgreSQL::Test::Utils::timeout_default;

# Wait until some client has its WAL file open, and all that have it open have it
# as they should.  A client opens its file when it is its turn to flush.
sub flags_of_clients
{
	my ($node, $expected) = @_;
	my $flags = 'none';

	for (1 .. 10 * $patience)
	{
		my @clients = split /\n/, $node->safe_psql(
			'postgres',
			q{SELECT pid FROM pg_stat_activity
			  WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()});
		my %seen =
		  map { $_ => 1 } grep { defined } map { fd_flags($_) } @clients;
		$flags = join ', ', sort keys %seen if %seen;
		last if $flags eq $expected;
		usleep(100_000);
	}
	return $flags;
}

foreach my $variant (variants())
{
	my $node = new_node("methods-$variant", $variant, wal_buffers => 16);
	$node->start;
	$node->safe_psql('postgres', 'CREATE TABLE t (client int, pad text)');
	my @methods = methods_of($node);

	my $script = $node->basedir . '/insert.sql';
	append_to_file($script,
		"INSERT INTO t VALUES (:client_id, repeat('x', 2000));\n");
	my ($out, $err) = ('', '');
	my $timeout = IPC::Run::timeout(4 * $patience);
	my $pgbench;
	{
		local %ENV = $node->_get_env();
		$pgbench = IPC::Run::start(
			[
				'pgbench', '-n', '-c', '3',
				'-T', 4 * $patience, '-R', '500',
				'-f', $script, '-h', $node->host,
				'-p', $node->port, 'postgres'
			],
			'<',
			'/dev/null',
			'>',
			\$out,
			'2>',
			\$err,
			$timeout);
	}

	foreach my $method (@methods, $methods[0])
	{
		set_method($node, $method);
		is( flags_of_clients($node, expected_flags($variant, $method)),
			expected_flags($variant, $method),
			"$variant: clients have switched to $method");
		$node->safe_psql('postgres', "INSERT INTO t VALUES (-1, '$method')");
	}

	# What is no method is refused everywhere, and the old one stays.
	my ($code, $stdout, $stderr) = $node->psql('postgres',
		"ALTER SYSTEM SET wal_sync_method = 'open_everything'");
	isnt($code, 0, "$variant: unknown method is refused");
	like(
		$stderr,
		qr/invalid value .*open_everything.*Available values: .*open_datasync/s,
		"$variant: the error names those that there are");
	my $offset = -s $node->logfile;
	$node->adjust_conf('postgresql.conf', 'wal_sync_method',
		'open_everything');
	$node->reload;
	$node->wait_for_log(qr/contains errors; unaffected changes were applied/,
		$offset);
	is($node->safe_psql('postgres', 'SHOW wal_sync_method'),
		$methods[0], "$variant: method stays after a wrong reload");

	# Crash with pgbench running.
	my $method = $methods[-1];
	set_method($node, $method);
	ok($pgbench->pumpable, "$variant: pgbench is still running");
	$node->stop('immediate');
	$timeout->start($patience);
	$pgbench->finish;
	my ($acknowledged) =
	  $out =~ /^number of transactions actually processed: (\d+)/m;
	recover($node);
	cmp_ok(
		$node->safe_psql(
			'postgres', 'SELECT count(*) FROM t WHERE client >= 0'),
		'>=',
		$acknowledged,
		"$variant: all commits of pgbench survived a crash with $method");
	is( $node->safe_psql(
			'postgres',
			q{SELECT string_agg(pad, ',' ORDER BY pad) FROM t WHERE client = -1}
		),
		join(',', sort @methods, $methods[0]),
		"$variant: so did those between the changes");
	$node->stop('immediate');
}

done_testing();
