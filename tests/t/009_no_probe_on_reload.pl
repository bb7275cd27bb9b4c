# pg_wal is tried with direct I/O by one process, once, when the server starts: not when it is
# reloaded, by none of its processes, and for no look at the configuration file.

use strict;
use warnings FATAL => 'all';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WalLab;

# How many files other than segments each process has opened for writing in pg_wal.
sub opened
{
	my ($traced) = @_;
	my %opened;

	foreach my $file (glob "$traced->{file}.*")
	{
		my ($pid) = $file =~ /\.(\d+)$/;
		my $count =
		  grep { m{openat\(.*"pg_wal/xlogtemp\.direct[^"]*", \S*O_DIRECT} }
		  split /\n/, slurp_file($file);
		$opened{$pid} = $count if $count;
	}
	return \%opened;
}

foreach my $variant (variants())
{
	my $node = new_node("probe-$variant", $variant);
	my $traced = start_traced($node);
	my ($postmaster) = split /\n/,
	  slurp_file($node->data_dir . '/postmaster.pid');
	my @methods = methods_of($node);
	my @direct = grep { is_direct($variant, $_) } @methods;
	my $expected = @direct ? { $postmaster => 1 } : {};

	is_deeply(opened($traced), $expected,
		"$variant: at start, the postmaster tries if there is something to try for"
	);
	my $idle = open_session($node);
	foreach my $method (@methods)
	{
		$node->safe_psql('postgres',
			"ALTER SYSTEM SET wal_sync_method = $method");
		is( $node->safe_psql(
				'postgres',
				q{SELECT applied FROM pg_file_settings
				  WHERE name = 'wal_sync_method' AND sourcefile ~ 'auto'}),
			't',
			"$variant: $method would be applied");
		set_method($node, $method);
		is(ask($idle, 'SHOW wal_sync_method'),
			$method, "$variant: a session that was there has $method");
	}
	close_session($idle);
	is_deeply(opened($traced), $expected, "$variant: nobody has tried since");
	stop_traced($traced, 'fast');
}

done_testing();
