
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
use Time::HiRes qw(usleep);

use ZklockBackend;

=head1 METHODS

=over

=item ZklockNode->initialized($name, $zk, %settings)

A new server, configured and not yet started.  C<%settings> go to its configuration;
a setting that is undef is left out altogether.  Without C<$zk>, C<zklock.hosts> has to
be among them.  Two are special: C<init>, a reference to what C<< Cluster->init >> takes, and
C<install_path>, where another PostgreSQL is installed.

=item ZklockNode->started($name, $zk, %settings)

The same, started, with the extension in database C<postgres> and connected to
ZooKeeper.

=item ZklockNode->standby($name, $primary, %settings)

A hot standby of C<$primary> (made with C<< init => [allows_streaming => 1] >>), started
and caught up.

=cut

# Whoever runs the tests, the superuser is postgres.
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
	$node->configure(
		'shared_preload_libraries' => 'zklock',
		'zklock.session_timeout' => '4s',
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

=item $node->poll_query_until($database, $sql)

As in C<PostgreSQL::Test::Cluster>, also while the server does not accept connections: IPC::Run
dies if psql has ended before it has read its query.

=cut

sub poll_query_until
{
	my ($self, @arguments) = @_;
	my $result;
	until (eval { $result = $self->SUPER::poll_query_until(@arguments); 1 })
	{
		die $@ unless $@ =~ /Broken pipe/;
	}
	return $result;
}

=item $node->wait_until($sql)

Until the query in database C<postgres> returns true; dies with what it returned last.

=cut

sub wait_until
{
	my ($self, $sql) = @_;
	$self->poll_query_until('postgres', $sql)
	  or croak "timed out waiting until: $sql";
	return;
}

=item $node->wait_until_connected

Until the server's ZooKeeper session is usable.

=cut

sub wait_until_connected
{
	my ($self) = @_;
	return $self->wait_until(q{SELECT state IN ('connected', 'idle') AND safe FROM zk_status});
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

What C<zk_status> says in this column.

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

Until nothing of the lock is left on this server: no ticket, no claim, and no local lock
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

=cut

sub worker_cpu { my ($self) = @_; return cpu_of($self->worker_pid); }

sub cpu_of
{
	my ($pid) = @_;
	my $stat = slurp_file("/proc/$pid/stat");
	my ($user, $system) = (split ' ', $stat =~ s/.*\)//sr)[ 11, 12 ];
	return ($user + $system) / POSIX::sysconf(POSIX::_SC_CLK_TCK());
}

=item $node->expire_session($zk, by_hand => 1, session => 1)

End a ZooKeeper session of this server, and wait until it has a new one.  Its worker
stands still meanwhile, until ZooKeeper has given it up.

C<by_hand> ends it at once.  But no client can foresee that, so claims pass for held for
a moment when another client may have the lock already.  On a machine that is slow
enough, the session expires before the client that is to end it has joined it.

=cut

sub expire_session
{
	my ($self, $zk, %opt) = @_;
	my $where = 'FROM zk_sessions WHERE session = ' . ($opt{session} // 1);
	my ($worker, $session, $epoch) =
	  split /\|/, $self->safe_psql('postgres', "SELECT worker_pid, session_id, epoch $where");

	# Standing still keeps it from fighting over the session with the client that ends it, too.
	kill 'STOP', $worker;
	my $is_gone =
	  $opt{by_hand}
	  ? $zk->kill_session($session) || !$zk->has_session($session)
	  : eval { $zk->wait_until(sub { !$zk->has_session($session) }, 'the session to expire') };
	my $problem = $@;
	kill 'CONT', $worker;
	croak "could not end session $session: $problem" unless $is_gone;
	$self->wait_until("SELECT epoch > $epoch $where");
	return $self->wait_until_connected;
}

=item $node->kill9

As in Cluster: the postmaster goes as if the machine had died.  What it leaves in the
kernel is removed at the end, should the test not start the server again.

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

The postmaster and all its children, as if the machine had died.  Returns when they are
gone.

=item $node->who_has_in_memory($text)

Process ids of the postmaster and its children that have this text in their memory, sorted.

=item $node->children

Process ids of the postmaster's children, each with what it calls itself.

=cut

sub kill9_all
{
	my ($self) = @_;
	my %children = $self->children;
	my $postmaster = $self->{_pid};
	$self->kill9;
	kill 'KILL', keys %children;

	# The next postmaster takes the zombie of this one for alive.
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
	open my $maps, '<', "/proc/$pid/maps" or $!{ENOENT} ? return 0 : die "maps: $!";
	open my $mem, '<:raw', "/proc/$pid/mem" or die "mem: $!";
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
