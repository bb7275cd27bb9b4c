# What the lab's TAP tests share: clusters of the installed variants, the system
# calls that a server makes on its WAL, and the calls that it ought to make.

package WalLab;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use Fcntl;
use IO::File;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

our @EXPORT = qw(
  $PAGE variants methods_of is_direct is_mended syncs_writes expected_flags
  new_node recover set_method open_session ask close_session fd_flags
  start_traced stop_traced wal_calls others_wrote measure expected_writes
  wal_dump_ok faults_folder with_faults set_fault
);

our $PAGE = 8192;

# The folder with one installed tree a variant.
my $servers = $ENV{WALLAB_SERVERS}
  or die "WALLAB_SERVERS must name the folder of the installed variants";

# How much a variant writes in one call: a page, what is adjacent in memory, or
# all that is due in the segment. no-pwritev is gather-ring where the platform
# lacks that call.
my %reach = (
	'stock' => 'ring',
	'gather-ring' => 'segment',
	'no-pwritev' => 'ring',
	'reload-sync' => 'ring',
	'baseline' => 'page',
	'direct-io' => 'page',
	'gather-write' => 'ring',
	'both' => 'ring',
	'committed' => 'ring');

my $patience = $PostgreSQL::Test::Utils::timeout_default;

# The variants that are installed.
sub variants
{
	my @found = grep { -d "$servers/$_" } sort keys %reach;

	die "no variant in $servers" if !@found;
	return @found;
}

# The values of wal_sync_method that the node's server has.
sub methods_of
{
	my ($node) = @_;

	return split /,/, $node->safe_psql(
		'postgres',
		q{SELECT array_to_string(enumvals, ',') FROM pg_settings
		  WHERE name = 'wal_sync_method'});
}

# Does the method write with O_DIRECT in that variant?
sub is_direct
{
	my ($variant, $method) = @_;

	return $method =~ /_direct$/
	  || ($variant eq 'committed' && $method =~ /^open_/);
}

# Does the variant have the patch reload-sync?
sub is_mended
{
	my ($variant) = @_;

	return $variant !~ /^(stock|gather-ring|no-pwritev)$/;
}

# Does the method sync by each write, so that no call for that is needed?
sub syncs_writes
{
	my ($method) = @_;

	return $method =~ /^open_/;
}

# The flags of an open WAL file that matter, like "O_DIRECT|O_SYNC".
sub expected_flags
{
	my ($variant, $method) = @_;
	my @flags;

	push @flags, 'O_DIRECT' if is_direct($variant, $method);
	push @flags, $method =~ /^open_datasync/ ? 'O_DSYNC' : 'O_SYNC'
	  if syncs_writes($method);
	return join '|', @flags;
}

# Make a cluster with segments of 1 MB that writes no WAL on its own account.
sub new_node
{
	my ($name, $variant, %settings) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name,
		install_path => "$servers/$variant");
	my %streaming = (allows_streaming => 1, has_archiving => 1);

	# Older ones can't take the template cluster.
	if ($node->pg_version >= 17)
	{
		$node->init(%streaming);
	}
	else
	{
		$node->init(%streaming, extra => ['--wal-segsize=1']);
	}
	%settings = (
		archive_mode => 'off',
		autovacuum => 'off',
		checkpoint_timeout => '1h',
		fsync => 'on',
		lock_timeout => "${patience}s",
		statement_timeout => "${patience}s",
		wal_keep_size => '1GB',
		max_wal_size => '2GB',
		wal_sync_method => 'fdatasync',
		wal_writer_delay => '10s',
		%settings);
	$node->append_conf('postgresql.conf', "$_ = '$settings{$_}'")
	  foreach sort keys %settings;
	return $node;
}

# Start the node after a crash.  It would sync each file of the cluster before
# recovery, which takes long and tests nothing here, if it were not for fsync.
sub recover
{
	my ($node) = @_;

	$node->append_conf('postgresql.conf', 'fsync = off');
	$node->start;
	return;
}

# Change wal_sync_method by a reload, and wait until sessions start with it.
sub set_method
{
	my ($node, $method) = @_;

	$node->adjust_conf('postgresql.conf', 'wal_sync_method', $method);
	$node->reload;
	$node->poll_query_until('postgres',
		"SELECT current_setting('wal_sync_method') = '$method'")
	  or die "wal_sync_method did not become $method";
	return;
}

# Start a psql that stays.
sub open_session
{
	my ($node) = @_;
	my $session = { in => '', out => '', err => '' };

	local %ENV = $node->_get_env();
	$session->{timeout} = IPC::Run::timeout($patience);
	$session->{run} = IPC::Run::start(
		[
			'psql', '-XAtq',
			'-v', 'ON_ERROR_STOP=1',
			'-d', $node->connstr('postgres'),
			'-f', '-'
		],
		'<',
		\$session->{in},
		'>',
		\$session->{out},
		'2>',
		\$session->{err},
		$session->{timeout});
	$session->{pid} = ask($session, 'SELECT pg_backend_pid()');
	return $session;
}

# Run statements in the session, and return what they print.
sub ask
{
	my ($session, $sql) = @_;

	$session->{out} = '';
	$session->{in} .= "$sql;\n\\echo -- done\n";
	$session->{timeout}->start($patience);
	while ($session->{out} !~ /^-- done$/m)
	{
		$session->{run}->pumpable
		  or die "psql has ended: $session->{err}";
		$session->{run}->pump;
	}
	my $out = $session->{out};
	$out =~ s/^-- done\n//m;
	chomp $out;
	return $out;
}

sub close_session
{
	my ($session) = @_;

	$session->{in} .= "\\q\n";
	$session->{timeout}->start($patience);
	$session->{run}->finish or die "psql failed: $session->{err}";
	return;
}

# The flags with which a process has its current WAL file open for writing, as
# the kernel tells, or undef if it has none.
sub fd_flags
{
	my ($pid) = @_;

	foreach my $fd (glob "/proc/$pid/fd/*")
	{
		my $target = readlink $fd;
		next
		  if !defined $target || $target !~ m{/pg_wal/[0-9A-F]{24}$};
		$fd =~ s/fd/fdinfo/;
		my $info = IO::File->new($fd) or next;
		my ($flags) = map { /^flags:\s*([0-7]+)/ ? oct($1) : () } <$info>;
		next if !($flags & (O_RDWR | O_WRONLY));
		my @names;
		push @names, 'O_DIRECT' if $flags & O_DIRECT();

		# O_SYNC includes O_DSYNC
		if    (($flags & O_SYNC()) == O_SYNC()) { push @names, 'O_SYNC'; }
		elsif ($flags & O_DSYNC())              { push @names, 'O_DSYNC'; }
		return join '|', @names;
	}
	return;
}

# Start the node's server under strace, which writes a file for each process.
# Being its parent, strace sees all of it, and ends with it.
sub start_traced
{
	my ($node) = @_;
	my $folder = $node->basedir . '/strace';
	my $traced = { node => $node, file => "$folder/trace" };

	mkdir $folder or die "could not make $folder: $!" if !-d $folder;
	unlink glob "$folder/*";
	local %ENV = $node->_get_env();
	$traced->{timeout} = IPC::Run::timeout($patience);
	$traced->{run} = IPC::Run::start(
		[
			'strace', '-ff', '--seccomp-bpf', '-qq',
			'-y', '-ttt', '-s', '0',
			'-e', 'trace=openat,pwrite64,pwritev,fsync,fdatasync,%%stat',
			'-o', $traced->{file},
			'postgres', '-D', $node->data_dir
		],
		'<',
		'/dev/null',
		'>>',
		$node->logfile,
		'2>&1',
		$traced->{timeout});

	# The postmaster's file tells when it accepts connections.
	my $state = $node->data_dir . '/postmaster.pid';
	for (1 .. 20 * $patience)
	{
		last if -e $state && slurp_file($state) =~ /^ready\s*$/m;
		usleep(50_000);
	}
	slurp_file($state) =~ /^ready\s*$/m
	  or die 'the traced server did not start';
	$node->_update_pid(1);
	return $traced;
}

# Stop the server; all of strace's files are complete after that.
sub stop_traced
{
	my ($traced, $mode) = @_;

	$traced->{node}->stop($mode);
	$traced->{timeout}->start($patience);
	$traced->{run}->finish;
	return;
}

# Where in the WAL an offset of a segment is.
sub position
{
	my ($segment, $offset, $segment_size) = @_;
	my $number =
	  hex(substr $segment, 8, 8) * (4294967296 / $segment_size) +
	  hex(substr $segment, 16, 8);

	return $number * $segment_size + $offset;
}

# What strace has seen of one process: calls on WAL segments, and marks.  Each is
# a hash of time and call; writes have position and size, opens their flags.
# strace puts out each line before the process goes on.
sub wal_calls
{
	my ($traced, $pid, $segment_size) = @_;
	my @calls;

	foreach my $line (split /\n/, slurp_file("$traced->{file}.$pid"))
	{
		my ($time, $rest) = $line =~ /^(\d+\.\d+) (.*)$/ or next;
		if ($rest =~
			m{^(pwrite64|pwritev)\(\d+<[^>]*/pg_wal/([0-9A-F]{24})>.*, (\d+)\)\s+= (\d+)$}
		  )
		{
			push @calls,
			  {
				time => $time,
				call => 'write',
				position => position($2, $3, $segment_size),
				size => $4
			  };
		}
		elsif ($rest =~
			m{^(fsync|fdatasync)\(\d+<[^>]*/pg_wal/[0-9A-F]{24}>\)\s+= 0$})
		{
			push @calls, { time => $time, call => $1 };
		}
		elsif ($rest =~
			m{^openat\(.*"pg_wal/[0-9A-F]{24}", ([A-Z_|]+)\S*\)\s+= \d}
			&& $1 !~ /O_RDONLY/)
		{
			my $flags = $1;
			push @calls,
			  {
				time => $time,
				call => 'open',
				flags => join '|',
				grep { /^O_(DIRECT|SYNC|DSYNC)$/ } sort split /\|/,
				$flags
			  };
		}
		elsif ($rest =~ m{"wallab-(begin|end)"})
		{
			push @calls, { time => $time, call => $1 };
		}
	}
	return @calls;
}

# How many writes of WAL other processes than this one have done, from one time
# to another.
sub others_wrote
{
	my ($traced, $pid, $from, $to) = @_;
	my $writes = 0;

	foreach my $file (glob "$traced->{file}.*")
	{
		my ($other) = $file =~ /\.(\d+)$/;
		next if $other == $pid;
		$writes += grep {
			$_->{call} eq 'write' && $_->{time} >= $from && $_->{time} <= $to
		} wal_calls($traced, $other, 1024 * 1024);
	}
	return $writes;
}

# The writes, as [position, size], that it takes to flush WAL that has been
# written as far as $from up to $to.
sub expected_writes
{
	my ($variant, $from, $to, $ring_size, $segment_size) = @_;
	my @writes;

	my $page = $from - $from % $PAGE;
	while ($page < $to)
	{
		my $joins =
			 @writes
		  && $reach{$variant} ne 'page'
		  && $page % $segment_size != 0
		  && !($reach{$variant} eq 'ring' && $page % $ring_size == 0);
		if ($joins)
		{
			$writes[-1][1] += $PAGE;
		}
		else
		{
			push @writes, [ $page, $PAGE ];
		}
		$page += $PAGE;
	}
	return @writes;
}

sub lsn
{
	my ($text) = @_;
	my ($high, $low) = split m{/}, $text;

	return hex($high) * 4294967296 + hex($low);
}

# Have the session do commits of some size (bytes) each, and return a hash of
# what was seen: the calls of the session's process meanwhile, where the WAL was
# flushed to before and after each commit, and the statistics' differences.
#
# The window doesn't count if somebody else has written WAL in the meantime, such
# as the WAL writer, and another one is taken.
sub measure
{
	my ($traced, $session, $commits, $size, $segment_size) = @_;
	my $major = $traced->{node}->pg_version->major;

	# Since 18 there are statistics of a single process.  Before that they may
	# include what others did at any time before.
	my $statistics = $major >= 18
	  ? q{SELECT writes, write_bytes, fsyncs
		  FROM pg_stat_get_backend_io(pg_backend_pid())
		  WHERE object = 'wal' AND context = 'normal'}
	  : 'SELECT wal_write, 0, wal_sync FROM pg_stat_wal';

	foreach my $attempt (1 .. 10)
	{
		my $out = ask(
			$session, qq{
SELECT pg_switch_wal() \\g /dev/null
SELECT pg_logical_emit_message(true, 'wallab', 'x') \\g /dev/null
SELECT pg_stat_force_next_flush() \\g /dev/null
$statistics;
SELECT pg_current_wal_flush_lsn();
SELECT pg_stat_file('wallab-begin', true) \\g /dev/null
DO \$\$
DECLARE
  flushed text[];
BEGIN
  FOR i IN 1..$commits LOOP
    PERFORM pg_logical_emit_message(true, 'wallab', repeat(chr(65 + i % 26), $size));
    COMMIT;
    flushed := flushed || pg_current_wal_flush_lsn()::text;
  END LOOP;
  PERFORM set_config('wallab.flushed', array_to_string(flushed, ' '), false);
END \$\$;
SELECT pg_stat_file('wallab-end', true) \\g /dev/null
SELECT pg_stat_force_next_flush() \\g /dev/null
$statistics;
SELECT current_setting('wallab.flushed')});
		my ($before, $start, $after, $flushed) = split /\n/, $out;
		my @calls = wal_calls($traced, $session->{pid}, $segment_size);
		my ($begin) =
		  reverse grep { $calls[$_]{call} eq 'begin' } 0 .. $#calls;
		my ($end) = reverse grep { $calls[$_]{call} eq 'end' } 0 .. $#calls;
		my $others = others_wrote(
			$traced, $session->{pid},
			$calls[$begin]{time},
			$calls[$end]{time});

		if ($others)
		{
			note "others wrote WAL meanwhile: once more";
			next;
		}
		my @before = split /\|/, $before;
		my @after = split /\|/, $after;

		# A new file is also opened to sync it, but last of all to write it.
		my ($opened) =
		  reverse grep { $_->{call} eq 'open' } @calls[ 0 .. $end ];
		return {
			opened => $opened->{flags},
			calls => [ @calls[ $begin + 1 .. $end - 1 ] ],
			flushed => [ map { lsn($_) } $start, split / /, $flushed ],
			statistics => [ map { $after[$_] - $before[$_] } 0 .. 2 ],
			others =>
			  others_wrote($traced, $session->{pid}, 0, $calls[$end]{time})
		};
	}
	die 'others wrote WAL each time';
}

# Make the folder by which faults of the node's writes are controlled, and told.
sub faults_folder
{
	my ($node) = @_;
	my $folder = $node->basedir . '/faults';

	mkdir $folder or die "could not make $folder: $!";
	return $folder;
}

# The environment of a server whose writes of WAL can have faults; see
# tests/faults/wal_faults.c.
sub with_faults
{
	my ($folder) = @_;

	return (
		LD_PRELOAD => $ENV{WALLAB_FAULTY_WRITES},
		WALLAB_FAULTS => $folder);
}

# Switch a fault on for all processes, or all of them off.
sub set_fault
{
	my ($folder, $mode, $unit) = @_;

	unlink "$folder/mode";
	if (defined $mode)
	{
		append_to_file("$folder/next", "$mode $unit");
		rename "$folder/next", "$folder/mode"
		  or die "could not set the fault: $!";
	}
	return;
}

# pg_waldump reads all WAL between two positions in the folder.
sub wal_dump_ok
{
	my ($node, $folder, $start, $end, $name) = @_;

	$node->command_ok(
		[
			'pg_waldump', '--quiet', '--path', $folder,
			'--start', $start, '--end', $end
		],
		$name);
	return;
}

1;
