# Faults of the system calls that write WAL: short at each boundary, before, at and behind the end of
# the WAL buffers, interrupted, and a full disk. What was acknowledged is in its place afterwards.

use strict;
use warnings FATAL => 'all';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use WalLab;

my $patience = $PostgreSQL::Test::Utils::timeout_default;

# Commits of some pages each, whose rows and messages differ; every second one or so comes across the
# end of the WAL buffers, and one across the end of a segment.
sub commits
{
	my ($tag) = @_;

	return qq{
DO \$\$
BEGIN
  FOR i IN 1..14 LOOP
    PERFORM pg_logical_emit_message(true, 'wallab', repeat(chr(65 + i), (1 + i % 6) * 7000));
    INSERT INTO t SELECT '$tag', i, md5(i * j || '$tag') FROM generate_series(1, 20) j;
    COMMIT;
  END LOOP;
END \$\$};
}

# The smallest direct write that the folder's file system takes.
sub direct_unit
{
	my ($folder) = @_;

	foreach my $size (512, 1024, 2048, 4096)
	{
		my @dd = (
			'dd', 'if=/dev/zero',
			"of=$folder/unit", "bs=$size",
			'count=1', 'oflag=direct',
			'status=none');
		my $taken = IPC::Run::run(\@dd, '2>', '/dev/null');
		unlink "$folder/unit";
		return $size if $taken;
	}
	die "$folder takes no direct I/O";
}

# The faults that there were: how many of a mode, and on how many buffers.
sub faults
{
	my ($folder) = @_;
	my %seen;

	return %seen if !-e "$folder/faults";
	foreach my $line (split /\n/, slurp_file("$folder/faults"))
	{
		my ($mode, $buffers) = split / /, $line;
		$seen{$mode}[$buffers]++;
	}
	return %seen;
}

foreach my $variant (variants())
{
	my $gathers_all = $variant eq 'gather-ring';
	my @modes = ('boundary', 'interrupted');
	push @modes, 'iovec', 'iovec-less', 'iovec-more' if $gathers_all;
	my $node = new_node("faults-$variant", $variant, wal_buffers => 8);
	my $folder = faults_folder($node);
	my $unit = direct_unit($node->data_dir);
	{
		local %ENV = (%ENV, with_faults($folder));
		$node->start;
	}
	$node->safe_psql('postgres',
		'CREATE TABLE t (tag text, i int, pad text)');
	my $start =
	  $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
	my @methods = methods_of($node);

	foreach my $method (@methods)
	{
		set_method($node, $method);
		my $session = open_session($node);
		foreach my $mode (@modes)
		{
			set_fault($folder, $mode, $unit);
			ask($session, commits("$method $mode"));
		}
		set_fault($folder);
		close_session($session);
	}
	my $sum = 'SELECT count(*), sum(hashtext(tag || i || pad)) FROM t';
	my $expected = $node->safe_psql('postgres', $sum);
	my $end =
	  $node->safe_psql('postgres', 'SELECT pg_current_wal_flush_lsn()');
	$node->stop('immediate');

	my %faults = faults($folder);
	foreach my $mode (@modes)
	{
		my $wanted = $mode =~ /^iovec/ ? 2 : 1;
		cmp_ok(
			$faults{$mode}[$wanted] // 0,
			'>=',
			scalar @methods,
			"$variant: there were faults: $mode");
	}
	is( $faults{boundary}[2] // 0 ? 'two buffers' : 'one',
		$gathers_all              ? 'two buffers' : 'one',
		"$variant: buffers of the writes that were cut");
	wal_dump_ok($node, $node->data_dir . '/pg_wal',
		$start, $end, "$variant: pg_waldump reads what was cut and went on");

	# The same server meets a full disk.
	{
		local %ENV = (%ENV, with_faults($folder));
		recover($node);
	}
	is($node->safe_psql('postgres', $sum),
		$expected, "$variant: all rows are back after a crash");
	my $offset = -s $node->logfile;
	set_fault($folder, 'full', $unit);
	my ($code) = $node->psql('postgres', commits('full'));
	isnt($code, 0, "$variant: a commit fails where the disk is full");
	for (1 .. 10 * $patience)
	{
		last if !-e $node->data_dir . '/postmaster.pid';
		usleep(100_000);
	}
	$node->_update_pid(0);
	like(
		slurp_file($node->logfile, $offset),
		qr/PANIC:  could not write to log file .*: No space left on device/,
		"$variant: the server says why it stops");
	set_fault($folder);
	$node->start;
	is($node->safe_psql('postgres', "$sum WHERE tag <> 'full'"),
		$expected, "$variant: all rows are back after that, too");
	$node->stop('immediate');
}

done_testing();
