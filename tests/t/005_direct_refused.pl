# A file system that refuses O_DIRECT, when a file is opened or not before it is written: no start and
# no reload with a direct method, but a message about the method, the directory and what to choose.

use strict;
use warnings FATAL => 'all';
use Fcntl;
use IO::File;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WalLab;

my %buffered = (
	fsync_direct => 'fsync',
	fdatasync_direct => 'fdatasync',
	open_direct => 'open_sync',
	open_datasync_direct => 'open_datasync');

# Have each method asked for of the node, which refuses those that are direct.
sub check_refusals
{
	my ($node, $variant, $how) = @_;

	$node->start;
	my @methods = methods_of($node);
	foreach my $method (grep { !is_direct($variant, $_) } @methods)
	{
		set_method($node, $method);
		$node->safe_psql('postgres',
			'SELECT txid_current(); SELECT pg_switch_wal()');
	}
	pass("$variant, $how: the other methods work");
	my @direct = grep { is_direct($variant, $_) } @methods;
	my $old = $node->safe_psql('postgres', 'SHOW wal_sync_method');

	foreach my $method (@direct)
	{
		my $what = "$variant, $how, $method";
		my $instead =
		  $variant eq 'committed' ? 'fdatasync' : $buffered{$method};
		my $hint =
		  qr/Set "wal_sync_method" to "$instead", or move the WAL directory/;
		my $reason =
		  qr/"wal_sync_method": "$method".*pg_wal" refused direct I\/O.*Invalid argument/s;

		my ($code, $stdout, $stderr) = $node->psql('postgres',
			"ALTER SYSTEM SET wal_sync_method = $method");
		isnt($code, 0, "$what: ALTER SYSTEM is refused");
		like($stderr, qr/$reason.*$hint/s, "$what: ALTER SYSTEM says why");

		my $idle = open_session($node);
		my $offset = -s $node->logfile;
		$node->adjust_conf('postgresql.conf', 'wal_sync_method', $method);
		$node->reload;
		$node->wait_for_log(
			qr/contains errors; unaffected changes were applied/, $offset);
		like(slurp_file($node->logfile, $offset),
			$reason, "$what: reload says why");
		is($node->safe_psql('postgres', 'SHOW wal_sync_method'),
			$old, "$what: old method is in force after the reload");
		is(ask($idle, 'SHOW wal_sync_method'),
			$old, "$what: and so it is in a session that was there");
		close_session($idle);
		$node->safe_psql('postgres',
			'SELECT txid_current(); SELECT pg_switch_wal()');

		$node->stop('fast');
		$offset = -s $node->logfile;
		is($node->start(fail_ok => 1), 0, "$what: server does not start");
		like(
			slurp_file($node->logfile, $offset),
			qr/FATAL:  could not use direct I\/O in directory "[^"]*pg_wal".*"wal_sync_method" setting "$method": Invalid argument.*$hint/s,
			"$what: FATAL error says why");
		$node->adjust_conf('postgresql.conf', 'wal_sync_method', $old);
		$node->start;
	}
	unlike(slurp_file($node->logfile), qr/PANIC/, "$variant, $how: no PANIC");
	$node->stop('immediate');
	return;
}

my $refusing = $ENV{WALLAB_REFUSING} // '';

foreach my $variant (variants())
{
	my $node = new_node("write-$variant", $variant, wal_buffers => 16);
	my $folder = faults_folder($node);
	{
		local %ENV = (%ENV, with_faults($folder));
		set_fault($folder, 'refuse', 512);
		check_refusals($node, $variant, 'by write');
	}

  SKIP:
	{
		skip 'no file system for that: a ramfs could not be mounted', 1
		  if !-d $refusing;
		my $file =
		  IO::File->new("$refusing/probe", O_RDWR | O_CREAT | O_DIRECT());
		skip "$refusing takes O_DIRECT", 1 if $file;

		$node = new_node("open-$variant", $variant, wal_buffers => 16);
		my $pg_wal = $node->data_dir . '/pg_wal';
		my $target = "$refusing/$variant";
		system_or_bail('cp', '-R', $pg_wal, $target);
		system_or_bail('mv', $pg_wal, "$pg_wal.unused");
		symlink $target, $pg_wal or die "could not make a link: $!";
		check_refusals($node, $variant, 'by open');
	}
}

done_testing();
