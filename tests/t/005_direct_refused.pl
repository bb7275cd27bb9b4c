# A file system that refuses O_DIRECT: no start and no reload with a direct
# method, but a message about the method, the directory and what to choose.

use strict;
use warnings FATAL => 'all';
use Fcntl;
use IO::File;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WalLab;

my $refusing = $ENV{WALLAB_REFUSING} // '';
plan skip_all => 'no file system for that: a ramfs could not be mounted'
  if !-d $refusing;
my $file = IO::File->new("$refusing/probe", O_RDWR | O_CREAT | O_DIRECT());
plan skip_all => "$refusing takes O_DIRECT" if $file;

foreach my $variant (variants())
{
	my $node = new_node("refused-$variant", $variant, wal_buffers => 16);
	my $pg_wal = $node->data_dir . '/pg_wal';
	my $target = "$refusing/$variant";
	system_or_bail('cp', '-R', $pg_wal, $target);
	system_or_bail('mv', $pg_wal, "$pg_wal.unused");
	symlink $target, $pg_wal or die "could not make a link: $!";
	$node->start;

	my @methods = methods_of($node);
	foreach my $method (grep { !is_direct($variant, $_) } @methods)
	{
		set_method($node, $method);
		$node->safe_psql('postgres',
			'SELECT txid_current(); SELECT pg_switch_wal()');
	}
	pass("$variant: the other methods work");
	my @direct = grep { is_direct($variant, $_) } @methods;
	my $old = $node->safe_psql('postgres', 'SHOW wal_sync_method');

	foreach my $method (@direct)
	{
		my $what = "$variant, $method";
		my $instead =
		  $variant eq 'committed'
		  ? 'fdatasync'
		  : {
			fsync_direct => 'fsync',
			fdatasync_direct => 'fdatasync',
			open_direct => 'open_sync',
			open_datasync_direct => 'open_datasync'
		  }->{$method};
		my $hint =
		  qr/Set "wal_sync_method" to "$instead", or move the WAL directory/;

		my ($code, $stdout, $stderr) = $node->psql('postgres',
			"ALTER SYSTEM SET wal_sync_method = $method");
		isnt($code, 0, "$what: ALTER SYSTEM is refused");
		like(
			$stderr,
			qr/"wal_sync_method": "$method".*direct I\/O.*$hint/s,
			"$what: ALTER SYSTEM says why");

		my $offset = -s $node->logfile;
		$node->adjust_conf('postgresql.conf', 'wal_sync_method', $method);
		$node->reload;
		$node->wait_for_log(
			qr/contains errors; unaffected changes were applied/, $offset);
		like(
			slurp_file($node->logfile, $offset),
			qr/"wal_sync_method": "$method".*direct I\/O/s,
			"$what: reload says why");
		is($node->safe_psql('postgres', 'SHOW wal_sync_method'),
			$old, "$what: old method is in force after the reload");
		$node->safe_psql('postgres',
			'SELECT txid_current(); SELECT pg_switch_wal()');

		$node->stop('fast');
		$offset = -s $node->logfile;
		is($node->start(fail_ok => 1), 0, "$what: server does not start");
		like(
			slurp_file($node->logfile, $offset),
			qr/FATAL:  could not use direct I\/O in directory "[^"]*pg_wal".*"wal_sync_method" setting "$method".*$hint/s,
			"$what: FATAL error says why");
		$node->adjust_conf('postgresql.conf', 'wal_sync_method', $old);
		$node->start;
	}
	unlike(slurp_file($node->logfile), qr/PANIC/, "$variant: no PANIC");
	$node->stop('immediate');
}

done_testing();
