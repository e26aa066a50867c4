
=head1 NAME

InteropPeer - services on Curator, kazoo and go-zookeeper that a TAP test can drive

=head1 SYNOPSIS

	my $zk = ZooKeeper->new;
	my $curator = InteropPeer->curator($zk);
	my $kazoo = InteropPeer->kazoo($zk, session_timeout => 2);

	my $c1 = $curator->actor('c1');				# a session, and a thread in it
	my $c1b = $curator->actor('c1.b');			# another thread in the same session
	my $c2 = $curator->actor('c2');				# another session

	is($c1->query('acquire mutex /zklock/job'), 't');
	$c2->send('acquire mutex /zklock/job 5000');	# does not wait
	ok(!$c2->is_done);
	is($c1->query('release mutex /zklock/job'), 't');
	is($c2->answer, 't');

	$curator->kill9;

The services are F<test/interop/CuratorPeer.java>, which needs about a second to start,
F<test/interop/kazoo_peer.py>, and F<test/interop/go_peer.go>, which is compiled first.  An actor has the methods of a L<ZklockBackend>, so
that a test can treat all contenders alike.  When the test ends, the services end.

=head1 PROTOCOL

Requests and answers are lines; answers come as soon as there are any.

	ID ACTOR OPERATION ARGUMENT...		->	ID ok VALUE
										->	ID error CLASS: MESSAGE
										->	* ACTOR EVENT...

The actor C<c1.b> is a thread of client C<c1>, that is, of one ZooKeeper session.  Both are
made when they are first used.  Each actor does what it is asked for in that order; the
operations in the second half are done at once, even if the actor is busy.

	acquire KIND PATH [MS|- [QUANTITY]]		t, or f after so many ms; 0 tries, - is endless
	release KIND PATH [QUANTITY]			t; an error (kazoo: f) if it was not held
	held KIND PATH							t or f, as the library has it
	nodes KIND PATH							znodes of all participants, in order (Curator)
	count PATH								the SharedCount in PATH/limit (Curator)
	set-count PATH N						t
	revocable PATH report|release			before acquiring a mutex (Curator); when asked
											by others: "* ACTOR revoked PATH", and with
											"release" then "* ACTOR released PATH"
	revoke ZNODE							ask its owner for the lock (Curator)
	hammer KIND PATH DIR ROUNDS [HOLD_US [QUANTITY]]
											load, see History.pm; how many rounds it did

	session									session id of the client, hexadecimal
	cancel									interrupt the actor's wait, which fails
	close									end the client's session in good order
	clock									CLOCK_MONOTONIC in ns, as the service reads it

Kinds of Curator's: C<mutex>, C<semmutex>, C<selector> and C<latch> (leadership), C<read> and C<write> (of one actor and path
they are one lock, so C<write> can be downgraded), C<semaphore=N> or C<semaphore=limit>; and only for C<hammer>
C<rw=N>, which reads in N of 100 rounds and else writes.

Kinds of kazoo's: C<mutex>, C<read>, C<write>, which have Curator's names;
C<patterns>, C<read_patterns>, C<write_patterns>, which are the stock classes with
C<extra_lock_patterns>; C<stock>, C<stock_read>, C<stock_write>.

The kind of go-zookeeper's: C<mutex>, without C<held>, C<cancel> and MS.

=cut

package InteropPeer;

use strict;
use warnings;

use Carp;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use IO::Select;
use IPC::Open2;
use List::Util qw(first);
use Time::HiRes qw(time);

use PostgreSQL::Test::Utils;

my $directory = abs_path(dirname(__FILE__) . '/../interop');
my $go_path = '/usr/share/gocode';
my $go_program;
my @peers;

=head1 SERVICES

=over

=item InteropPeer->curator($zk, session_timeout => 10), InteropPeer->kazoo(...), InteropPeer->go(...)

Start one.  The timeout of its sessions is in seconds.  With C<< user => 'user:password' >>
its clients authenticate, and what they make is only for that user.  With C<hosts>, they connect to
these addresses instead of those of C<$zk>.

=item InteropPeer->go_library

Which library C<go> uses, as Go programs import it; undef if there is none, or no compiler.

=cut

sub curator
{
	my ($class, $zk, %params) = @_;

	# Jars name what they need in their manifests.  The options make it start faster, and leave no file in /tmp when
	# the test kills it.
	return $class->_start('Curator', $zk, \%params,
		qw(java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -cp),
		join(':', map { "/usr/share/java/$_.jar" } 'curator-recipes', 'slf4j-nop'),
		"$directory/CuratorPeer.java");
}

sub kazoo
{
	my ($class, $zk, %params) = @_;
	return $class->_start('kazoo', $zk, \%params, '/usr/bin/python3',
		"$directory/kazoo_peer.py");
}

# Debian has go-zookeeper by the name of its former owner or, from 13 on, by its own.
sub go_library
{
	return first { -x '/usr/bin/go' && -d "$go_path/src/$_" }
	  'github.com/go-zookeeper/zk', 'github.com/samuel/go-zookeeper/zk';
}

sub go
{
	my ($class, $zk, %params) = @_;
	$go_program //= _compile_go();
	return $class->_start('Go', $zk, \%params, $go_program);
}

# Only from Debian's packages: the compiler must not look for modules, or for a newer compiler, elsewhere.
sub _compile_go
{
	my $scratch = PostgreSQL::Test::Utils::tempdir('go');
	my $library = go_library();
	append_to_file("$scratch/go_peer.go",
		slurp_file("$directory/go_peer.go") =~ s{"github.com/go-zookeeper/zk"}{"$library"}r);
	local %ENV = (%ENV, GO111MODULE => 'off', GOPATH => $go_path, GOPROXY => 'off', GOTOOLCHAIN => 'local',
		GOFLAGS => '', GOCACHE => "$scratch/cache", CGO_ENABLED => 0);
	PostgreSQL::Test::Utils::system_or_bail('go', 'build', '-o', "$scratch/go_peer", "$scratch/go_peer.go");
	return "$scratch/go_peer";
}

sub _start
{
	my ($class, $name, $zk, $params, @command) = @_;
	my $self = bless {
		name => $name,
		received => '',
		answers => {},
		events => [],
		next_id => 1,
	}, $class;

	$self->{pid} = open2($self->{output}, $self->{input}, @command, $params->{hosts} // $zk->hosts,
		1000 * ($params->{session_timeout} // 10), $params->{user} // ());
	push @peers, $self;
	return $self;
}

=item $peer->actor($name)

=item $peer->pid

=item $peer->version

Of the library, to be compared with C<v5.5>, say.

=item $peer->kill9, $peer->pause, $peer->resume

kill -9, SIGSTOP and SIGCONT.  After C<kill9>, requests without an answer have failed.

=cut

sub actor
{
	my ($self, $name) = @_;
	return bless { peer => $self, name => $name }, 'InteropPeer::Actor';
}

sub pid { my ($self) = @_; return $self->{pid}; }

sub version
{
	my ($self) = @_;
	my $package = { Curator => 'libcurator-recipes-java', kazoo => 'python3-kazoo' }->{ $self->{name} };
	my ($version) = `dpkg-query -W -f '\${Version}' $package` =~ /^([\d.]+)/;
	return version->parse("v$version");
}

sub pause { my ($self) = @_; kill 'STOP', $self->{pid}; return; }
sub resume { my ($self) = @_; kill 'CONT', $self->{pid}; return; }

sub kill9
{
	my ($self) = @_;
	return unless $self->{pid};
	kill 'KILL', $self->{pid};
	waitpid $self->{pid}, 0;
	delete $self->{pid};
	return;
}

=item $peer->ask($actor_name, $command)

Ask, wait, and return the value; dies with the service's message if the request fails.

=back

=cut

sub ask
{
	my ($self, $actor, $command) = @_;
	my $id = $self->_request($actor, $command);
	my ($is_ok, $text) = @{ $self->_wait_for_answer($id, "$actor $command") };
	croak "$self->{name}: $actor $command: $text" unless $is_ok;
	return $text;
}

sub _request
{
	my ($self, $actor, $command) = @_;
	my $id = $self->{next_id}++;
	local $SIG{PIPE} = 'IGNORE';
	syswrite $self->{input}, "$id $actor $command\n";
	return $id;
}

sub _wait_for_answer
{
	my ($self, $id, $what) = @_;
	$self->_wait_until(sub { $self->_has_answer($id) }, "$self->{name} to answer: $what");
	return delete $self->{answers}{$id} // [ 0, 'Died: the service has ended' ];
}

# A service that has ended answers no more.
sub _has_answer
{
	my ($self, $id) = @_;
	return $self->{answers}{$id} || $self->{has_ended};
}

sub _wait_until
{
	my ($self, $condition, $what) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
	until ($condition->())
	{
		croak "timed out waiting for $what" if time > $deadline;
		$self->_receive(1);
	}
	return;
}

# Take the service's answers, and wait for them for so many seconds at most.
sub _receive
{
	my ($self, $seconds) = @_;
	while (!$self->{has_ended} && IO::Select->new($self->{output})->can_read($seconds))
	{
		$seconds = 0;
		$self->{has_ended} = 1
		  unless sysread $self->{output}, $self->{received}, 65536, length $self->{received};
	}
	while ($self->{received} =~ s/^(\S+) (.*)\n//)
	{
		my ($id, $text) = ($1, $2);
		if ($id eq '*')
		{
			push @{ $self->{events} }, $text;
			next;
		}
		my ($kind, $value) = $text =~ /^(ok|error) ?(.*)$/
		  or croak "$self->{name} says: $id $text";
		$self->{answers}{$id} = [ $kind eq 'ok', $value ];
	}
	return;
}

# Waiting for children sets $?, which is the exit status of the test here.
END
{
	my $status = $?;
	$_->kill9 foreach @peers;
	$? = $status;
}

package InteropPeer::Actor;

use strict;
use warnings;

use Carp;
use Time::HiRes qw(time);

=head1 ACTORS

=over

=item $actor->send($command), is_done, result, answer, run, query, errcode

As in L<ZklockBackend>: C<query> waits, and dies with the service's message if it failed.  In a
C<result>, C<err> is the message and C<errcode> the class of the error.

=cut

sub send
{
	my ($self, $command) = @_;
	croak 'the last command has no result yet' if $self->{id};
	$self->{sent_at} = time;
	$self->{command} = $command;
	$self->{id} = $self->{peer}->_request($self->{name}, $command);
	return;
}

sub is_done
{
	my ($self) = @_;
	croak 'nothing was sent' unless $self->{id};
	$self->{peer}->_receive(0);
	return $self->{peer}->_has_answer($self->{id}) ? 1 : '';
}

sub result
{
	my ($self) = @_;
	croak 'nothing was sent' unless $self->{id};
	my $answer =
	  $self->{peer}->_wait_for_answer(delete $self->{id}, "$self->{name} $self->{command}");
	my ($is_ok, $text) = @$answer;
	return {
		out => $is_ok ? $text : '',
		err => $is_ok ? '' : $text,
		errcode => $is_ok ? '' : $text =~ s/:.*//r,
		seconds => time - $self->{sent_at},
	};
}

sub answer
{
	my ($self) = @_;
	my $result = $self->result;
	croak "$self->{name} $self->{command}: $result->{err}" if $result->{errcode};
	return $result->{out};
}

sub run { my ($self, $command) = @_; $self->send($command); return $self->result; }
sub query { my ($self, $command) = @_; $self->send($command); return $self->answer; }
sub errcode { my ($self, $command) = @_; return $self->run($command)->{errcode}; }

=item $actor->session, $actor->cancel, $actor->close, $actor->clock

Operations that do not wait until the actor has done its earlier requests.

=item $actor->wait_for_event($event)

Wait until the service has reported this event of the actor, such as C<revoked /zklock/job>.
Each event is waited for once.

=item $actor->name

=back

=cut

sub session { my ($self) = @_; return $self->{peer}->ask($self->{name}, 'session'); }
sub cancel { my ($self) = @_; return $self->{peer}->ask($self->{name}, 'cancel'); }
sub close { my ($self) = @_; return $self->{peer}->ask($self->{name}, 'close'); }
sub clock { my ($self) = @_; return $self->{peer}->ask($self->{name}, 'clock'); }
sub name { my ($self) = @_; return $self->{name}; }

sub wait_for_event
{
	my ($self, $event) = @_;
	my $events = $self->{peer}{events};
	my $wanted = "$self->{name} $event";
	my $found;
	$self->{peer}->_wait_until(
		sub {
			$self->{peer}->_receive(0);
			($found) = grep { $events->[$_] eq $wanted } 0 .. $#$events;
			return defined $found || $self->{peer}{has_ended};
		},
		"the event: $wanted");
	croak "the service ended before it said: $wanted" unless defined $found;
	splice @$events, $found, 1;
	return 1;
}

1;
