
=head1 NAME

ZklockNode - a PostgreSQL server with zklock, for TAP tests

=head1 SYNOPSIS

	my $zk = ZooKeeper->new;
	my $a = ZklockNode->started('a', $zk);
	my $b = ZklockNode->started('b', $zk, 'zklock.session_timeout' => '2s');

	my $holder = $a->background_psql('postgres');
	$holder->query_safe("SELECT zk_lock_acquire('/job')");
	$b->wait_for_waiter('/job', 1);

It is a L<PostgreSQL::Test::Cluster>, with what zklock's tests need on top.

=cut

package ZklockNode;

use strict;
use warnings;

use parent qw(PostgreSQL::Test::Cluster);

use Carp;
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More ();
use Time::HiRes qw(usleep);

use ZklockBackend;
use ZooKeeper;

=head1 METHODS

=over

=item ZklockNode->initialized($name, $zk, %settings)

A new server, configured and not yet started.  C<%settings> go to its configuration;
a setting that is undef is left out altogether.  Without C<$zk>, C<zklock.hosts> has to
be among them.  Two are special: C<init>, a reference to what C<< Cluster->init >> takes, and
C<install_path>, where another PostgreSQL is installed.

The session timeout is long, because on a busy machine ZooKeeper or the worker may stand still for
seconds, and then zklock refuses commits.  Only a test that waits for an expiry or a doubt sets a
shorter one, and only for the server in question.  C<< $zk->kill_session >> ends a session without a
wait.

=item ZklockNode->started($name, $zk, %settings)

The same, started, with the extension in database C<postgres> and connected to
ZooKeeper.

=item ZklockNode->existing($name, $host, $port)

A server that something else has started, and will stop.

=item ZklockNode->standby($name, $primary, %settings)

A hot standby of C<$primary> (made with C<< init => [allows_streaming => 1] >>), started
and caught up.

=cut

# Whichever user runs the tests, the superuser is postgres.
$ENV{PGUSER} = 'postgres';

sub init
{
	my ($self, %params) = @_;
	return $self->SUPER::init(%params, extra => [ '-U', 'postgres', @{ $params{extra} // [] } ]);
}

sub initialized
{
	my ($class, $name, $zk, %settings) = @_;
	my $init = delete $settings{init} // [];
	my $install_path = delete $settings{install_path};

	my $node = $class->new($name, $install_path ? (install_path => $install_path) : ());
	$node->init(@$init);
	# Memory that is a file leaves nothing behind, even if the test kills the server.
	$node->configure(
		'shared_preload_libraries' => 'zklock',
		'dynamic_shared_memory_type' => 'mmap',
		'zklock.session_timeout' => '30s',
		'zklock.node_name' => $name,
		$zk ? ('zklock.hosts' => $zk->hosts) : (),
		%settings);
	return $node;
}

sub started
{
	my ($class, $name, $zk, %settings) = @_;

	my $node = $class->initialized($name, $zk, %settings);
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION zklock');
	$node->wait_until_connected;
	return $node;
}

sub existing
{
	my ($class, $name, $host, $port) = @_;
	my $node = $class->new($name, port => $port);
	$node->{_host} = $host;
	return $node;
}

sub standby
{
	my ($class, $name, $primary, %settings) = @_;

	$primary->backup("for_$name");
	my $node = $class->new($name);
	$node->init_from_backup($primary, "for_$name", has_streaming => 1);
	$node->configure('zklock.node_name' => $name, %settings);
	$node->start;
	$primary->wait_for_catchup($node, 'replay');
	return $node;
}

=item $node->follow($upstream, %settings)

Make a standby of a server that does not run.

=item $node->rewind($primary)

Let a server that has been stopped forget what C<$primary> never had.  It keeps its configuration.

=cut

sub follow
{
	my ($self, $upstream, %settings) = @_;
	$self->configure('primary_conninfo' => $upstream, %settings);
	return $self->set_standby_mode;
}

sub rewind
{
	my ($self, $primary) = @_;
	my $config = $self->data_dir . '/postgresql.conf';
	my $own = slurp_file($config);
	$primary->safe_psql('postgres', 'CHECKPOINT');
	system_or_bail('pg_rewind', '--target-pgdata', $self->data_dir, '--source-server', $primary->connstr('postgres'));
	unlink $config;
	append_to_file($config, $own);
	return;
}

=item $node->configure(%settings)

Append settings to postgresql.conf; C<reload> or C<restart> makes them work.

=cut

sub configure
{
	my ($self, %settings) = @_;
	foreach my $name (sort keys %settings)
	{
		next unless defined $settings{$name};
		(my $value = $settings{$name}) =~ s/'/''/g;
		$self->append_conf('postgresql.conf', "$name = '$value'");
	}
	return;
}

=item $node->set($name, $value)

Change a setting by reload, and wait until new backends have it.

=cut

sub set
{
	my ($self, $name, $value) = @_;
	$self->configure($name => $value);
	$self->reload;
	return $self->wait_until("SELECT current_setting('$name') = '$value'");
}

=item $node->hang_commits

From now on, a commit with C<synchronous_commit = on> waits for a standby, which never comes.  That begins only
when the checkpointer has heard of the setting; so a session tries.

=cut

sub hang_commits
{
	my ($self) = @_;
	$self->set('synchronous_standby_names', 'nobody');
	my $probe = $self->backend;
	my $pid = $probe->pid;
	my $hangs = 0;
	$probe->query('SET synchronous_commit = on');
	until ($hangs)
	{
		$probe->send(q{SELECT pg_logical_emit_message(true, 'probe', '')});
		until ($hangs || $probe->is_done)
		{
			$hangs = $self->safe_psql('postgres', "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $pid") eq 't';
		}
		$self->safe_psql('postgres', "SELECT pg_cancel_backend($pid)") if $hangs;
		$probe->result;
	}
	return $probe->quit;
}

=item $node->wait_until($sql)

Until the query in database C<postgres> returns true; dies with what it said last.

=item $node->poll_query_until($database, $sql, $expected)

The same, as in C<PostgreSQL::Test::Cluster>: for any database and answer, and false if that never comes.

=cut

sub wait_until
{
	my ($self, $sql) = @_;
	$self->poll_query_until('postgres', $sql)
	  or croak "timed out waiting until: $sql";
	return;
}

# In one session, because a psql for each question would keep the processors busy.  The server may
# not accept connections yet, or end the session.
sub poll_query_until
{
	my ($self, $database, $sql, $expected) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
	my $session;
	for (;;)
	{
		my $answer = eval { ($session //= $self->backend(dbname => $database))->query($sql) };
		my $problem = $@;
		my $is_there = defined $answer && $answer eq ($expected // 't');
		if ($session && ($is_there || !defined $answer))
		{
			eval { $session->quit };
			undef $session;
		}
		return 1 if $is_there;
		if (time > $deadline)
		{
			Test::More::diag("$sql: " . ($answer // $problem));
			return 0;
		}
		usleep(20_000);
	}
}

=item $node->wait_until_connected

Until the server's ZooKeeper session is usable.

=cut

sub wait_until_connected
{
	my ($self) = @_;
	return $self->wait_until(q{SELECT connected_since IS NOT NULL AND safe FROM zk_status});
}

=item $node->wait_until_away

Until the server has noticed that ZooKeeper is away.

=cut

sub wait_until_away
{
	my ($self) = @_;
	return $self->wait_until(q{SELECT state NOT IN ('connected', 'idle') FROM zk_status});
}

=item $node->status($column)

The value of this column of C<zk_status>.

=cut

sub status
{
	my ($self, $column) = @_;
	return $self->safe_psql('postgres', "SELECT $column FROM zk_status");
}

=item $node->wait_for_waiter($path, $n)

Until C<$n> backends of this server wait for the lock.

=cut

sub wait_for_waiter
{
	my ($self, $path, $n) = @_;
	return $self->wait_until(
		"SELECT count(*) = $n FROM zk_locks WHERE path = '$path' AND NOT granted");
}

=item $node->wait_for_ticket($path, $state)

Until this server's ticket for the lock is in this state.

=item $node->wait_until_contended($path)

Until this server knows that another client queues behind its ticket.

=item $node->wait_until_clean($path)

Until nothing of the lock is left on this server: no ticket, no claim, and no advisory lock
(of any path of zklock).

=cut

sub wait_for_ticket
{
	my ($self, $path, $state) = @_;
	return $self->wait_until("SELECT coalesce(bool_and(ticket = '$state'), false)"
		  . " FROM zk_locks WHERE path = '$path'");
}

sub wait_until_contended
{
	my ($self, $path) = @_;
	return $self->wait_until("SELECT coalesce(bool_and(contended), false)"
		  . " FROM zk_locks WHERE path = '$path'");
}

sub wait_until_clean
{
	my ($self, $path) = @_;
	return $self->wait_until(
		"SELECT NOT EXISTS (SELECT FROM zk_locks WHERE path = '$path')"
		  . " AND NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND database = 0)"
	);
}

=item $node->worker_pid

Process id of the worker, or the empty string.

=cut

sub worker_pid
{
	my ($self) = @_;
	return $self->safe_psql('postgres',
		q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'zklock worker'});
}

=item $node->worker_cpu

Seconds of CPU time that the worker has used so far.

=item ZklockNode::cpu_of($pid)

The same of any process.

=item ZklockNode::wakeups_of($pid, $seconds)

How often a second the process has gone to sleep, in the next so many seconds.

=cut

sub worker_cpu { my ($self) = @_; return cpu_of($self->worker_pid); }

sub cpu_of
{
	my ($pid) = @_;
	my $stat = slurp_file("/proc/$pid/stat");
	my ($user, $system) = (split ' ', $stat =~ s/.*\)//sr)[ 11, 12 ];
	return ($user + $system) / POSIX::sysconf(POSIX::_SC_CLK_TCK());
}

sub wakeups_of
{
	my ($pid, $seconds) = @_;
	my $count = sub { return (slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s*(\d+)$/m)[0]; };
	my ($begin, $before) = (time, $count->());
	sleep $seconds;
	return ($count->() - $before) / (time - $begin);
}

=item $node->expire_session($zk, by_hand => 1)

End the ZooKeeper session of this server, and wait until it has a new one.  Its worker
stands still meanwhile, until ZooKeeper has given it up.

C<by_hand> ends it at once.  But no client can foresee that, so for a moment claims count as
held when another client may have the lock already.  On a slow machine, the session may expire
before the client that is to end it has joined it.

=cut

sub expire_session
{
	my ($self, $zk, %opt) = @_;
	my ($worker, $session, $epoch) = split /\|/, $self->status('worker_pid, session_id, epoch');

	# The worker stands still, so that it does not fight for the session with the client that ends
	# it.
	kill 'STOP', $worker;
	my $is_gone =
	  $opt{by_hand}
	  ? $zk->kill_session($session) || !$zk->has_session($session)
	  : eval { $zk->wait_until(sub { !$zk->has_session($session) }, 'the session to expire') };
	my $problem = $@;
	kill 'CONT', $worker;
	croak "could not end session $session: $problem" unless $is_gone;
	$self->wait_until("SELECT epoch > $epoch FROM zk_status");
	return $self->wait_until_connected;
}

=item $node->set_session_timeout($zk, $timeout)

Change the setting, and begin a ZooKeeper session that has this timeout.  The present one ends, with
all locks of the server.

=cut

sub set_session_timeout
{
	my ($self, $zk, $timeout) = @_;
	$self->set('zklock.session_timeout', $timeout);
	$self->expire_session($zk, by_hand => 1);
	return;
}

=item $node->arm($point, $action)

The next process of this server that gets to the fault point stands still, or fails or dies if C<$action> says so.
Needs a build with fault points.

=item $node->at_point($point)

Wait until a process has got there since C<arm>; returns it.  If it is to stop, it stands still then.

=item ZklockNode::is_still($pid), ZklockNode::wait_until_still($pid)

Whether that process has been stopped by a signal.

=cut

sub arm
{
	my ($self, $point, $action) = @_;
	$action //= 'stop';
	$self->{armed}{$point} = [ $action, -s $self->logfile ];
	symlink $action, $self->data_dir . "/zklock.fault.$point" or croak "symlink: $!";
	return;
}

sub at_point
{
	my ($self, $point) = @_;
	my ($action, $at) = @{ $self->{armed}{$point} };
	my $pid;
	ZooKeeper->wait_until(
		sub { ($pid) = slurp_file($self->logfile, $at) =~ /fault point "$point": process (\d+) shall $action\n/; return $pid; },
		"a process to get to $point");
	wait_until_still($pid) if $action eq 'stop';
	return $pid;
}

sub is_still { my ($pid) = @_; return slurp_file("/proc/$pid/stat") =~ /^\d+ \(.*\) T /; }
sub wait_until_still { my ($pid) = @_; return ZooKeeper->wait_until(sub { is_still($pid) }, "process $pid to stand still"); }

=item $node->kill9

As in Cluster: the postmaster goes as if the machine had died.  If the test does not start the
server again, its shared memory is removed at the end.

=cut

my @shared_memory;

sub kill9
{
	my ($self) = @_;
	my @lines = split /\n/, slurp_file($self->data_dir . '/postmaster.pid');
	push @shared_memory, $1 if ($lines[6] // '') =~ /(\d+)\s*$/;
	return $self->SUPER::kill9;
}

=item $node->kill9_all

Kill the postmaster and all its children, as if the machine had died.  Returns when they are
gone.

=item $node->who_has_in_memory($text)

Process ids of the postmaster and its children that have this text in their memory, sorted.

=item $node->children

Process ids of the postmaster's children, each with its name.

=cut

sub kill9_all
{
	my ($self) = @_;
	my %children = $self->children;
	my $postmaster = $self->{_pid};
	$self->kill9;
	kill 'KILL', keys %children;

	# The next postmaster would take this one's zombie for alive.
	usleep(10_000) while -e "/proc/$postmaster" || grep { !_is_dead($_) } keys %children;
	return;
}

sub children
{
	my ($self) = @_;
	my $postmaster = (split /\n/, slurp_file($self->data_dir . '/postmaster.pid'))[0];
	my %children;
	foreach my $directory (glob '/proc/[0-9]*')
	{
		my ($pid) = $directory =~ /(\d+)$/;
		my $status = eval { slurp_file("$directory/status") } // next;
		next unless $status =~ /^PPid:\s+$postmaster$/m;
		($children{$pid} = eval { slurp_file("$directory/cmdline") } // '') =~ s/\0.*//s;
	}
	return %children;
}

sub who_has_in_memory
{
	my ($self, $text) = @_;
	my $postmaster = (split /\n/, slurp_file($self->data_dir . '/postmaster.pid'))[0];
	my %children = $self->children;
	return sort { $a <=> $b } grep { _has_in_memory($_, $text) } $postmaster, keys %children;
}

# Some processes have ended since they were listed.
sub _has_in_memory
{
	my ($pid, $text) = @_;
	open my $maps, '<', "/proc/$pid/maps" or $!{ENOENT} || $!{ESRCH} ? return 0 : die "maps: $!";
	open my $mem, '<:raw', "/proc/$pid/mem" or $!{ENOENT} || $!{ESRCH} ? return 0 : die "mem: $!";
	while (my $line = <$maps>)
	{
		my ($from, $to, $mode) = $line =~ /^(\w+)-(\w+) (\S+)/;
		no warnings 'portable';
		next unless $mode =~ /^r/ && $line !~ /\[v/;
		sysseek $mem, hex $from, 0 or next;
		my $left = hex($to) - hex $from;
		my $tail = '';
		while ($left > 0 && (my $n = sysread $mem, my $chunk, $left < 1 << 20 ? $left : 1 << 20))
		{
			return 1 if index("$tail$chunk", $text) >= 0;
			$tail = substr $chunk, -64;
			$left -= $n;
		}
	}
	return 0;
}

# A zombie is dead; whether it is reaped is up to the machine's init.
sub _is_dead
{
	my ($pid) = @_;
	my $status = eval { slurp_file("/proc/$pid/status") } // return 1;
	return $status =~ /^State:\s+Z/m;
}

END
{
	my $status = $?;
	system("ipcrm -m $_ 2>/dev/null") foreach @shared_memory;
	$? = $status;
}

=item $node->backend(dbname => 'postgres')

A session of its own, as L<ZklockBackend>.  Other parameters are those of
C<< Cluster->background_psql >>.

=cut

sub backend
{
	my ($self, %params) = @_;
	my $dbname = delete $params{dbname} // 'postgres';
	return ZklockBackend->adopt($self->background_psql($dbname, on_error_stop => 0, %params));
}

=item ZklockNode::paths_in($partition, $n)

C<$n> paths in one of the 16 partitions of the lock table.  Needs a server with fault points:
only there the key of the hash is known, because it is zero.

=cut

sub paths_in
{
	my ($partition, $n) = @_;
	my @paths;
	for (my $i = 1; @paths < $n; $i++)
	{
		push @paths, "/x$i" if (_siphash("/x$i") & 15) == $partition;
	}
	return @paths;
}

# The first half of src/protocol/siphash.c.  Perl's bits have no sign; sums need "integer" to wrap.
sub _siphash
{
	my ($text) = @_;
	no warnings qw(portable);
	my ($a, $b, $c, $d) = (0x736f6d6570736575, 0x646f72616e646f6d ^ 0xee, 0x6c7967656e657261, 0x7465646279746573);
	my $sum = sub { use integer; return $_[0] + $_[1]; };
	my $rotate = sub { my ($word, $bits) = @_; return ($word << $bits) | ($word >> (64 - $bits)); };
	my $mix = sub {
		foreach (1 .. shift)
		{
			$a = $sum->($a, $b);
			$b = $rotate->($b, 13) ^ $a;
			$a = $rotate->($a, 32);
			$c = $sum->($c, $d);
			$d = $rotate->($d, 16) ^ $c;
			$a = $sum->($a, $d);
			$d = $rotate->($d, 21) ^ $a;
			$c = $sum->($c, $b);
			$b = $rotate->($b, 17) ^ $c;
			$c = $rotate->($c, 32);
		}
	};
	my $rest = length($text) % 8;
	my @words = unpack 'Q<*', $text . "\0" x (7 - $rest) . chr(length($text) % 256);
	foreach my $word (@words)
	{
		$d ^= $word;
		$mix->(2);
		$a ^= $word;
	}
	$c ^= 0xee;
	$mix->(4);
	return $a ^ $b ^ $c ^ $d;
}

=item $node->errcode($sql)

SQLSTATE with which the statement fails, or the empty string.

=back

=cut

sub errcode
{
	my ($self, $sql) = @_;
	my ($rc, $out, $err) = $self->psql('postgres', "\\set VERBOSITY sqlstate\n$sql");
	return $err =~ /(?:ERROR|FATAL):\s+(\w{5})/ ? $1 : '';
}

1;
