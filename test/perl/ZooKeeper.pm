
=head1 NAME

ZooKeeper - ZooKeeper servers and clients for TAP tests

=head1 SYNOPSIS

	my $zk = ZooKeeper->new(servers => 3);		# created and started
	$node->append_conf('postgresql.conf', "zklock.hosts = '" . $zk->hosts . "'");

	$zk->pause($zk->leader);
	$zk->kill9(1);
	$zk->start;

	$zk->create('/zklock/job/lock-', ephemeral => 1, sequence => 1, client => 'foreign');
	$zk->wait_for_children('/zklock/job', 2);
	$zk->close('foreign');

Servers are run by F<test/zookeeper>, znodes are reached through
F<test/zkclient.py>.  When the test ends, all of them end.

=cut

package ZooKeeper;

use strict;
use warnings;

use Carp;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Path qw(rmtree);
use IPC::Open2;
use JSON::PP;
use Time::HiRes qw(time usleep);

use PostgreSQL::Test::Utils;

my $test_dir = abs_path(dirname(__FILE__) . '/..');
my $json = JSON::PP->new->canonical->allow_nonref;
my @ensembles;

=head1 SERVERS

=over

=item ZooKeeper->new(servers => 1, observers => 0, tick_time => 500, java_opts => $KEEP_CONTAINERS, start => 1)

An ensemble of 1 or 3 servers, or more, the last of which only observe.  The shortest session timeout is two ticks.  By default, the servers keep empty
directories (containers).  Outside of tests they look for these each minute; a test that counts requests would
count some more by chance.

=cut

my $KEEP_CONTAINERS = '-Dznode.container.checkIntervalMs=3600000';

sub new
{
	my ($class, %params) = @_;

	my $self = bless {
		directory => PostgreSQL::Test::Utils::tempdir('zookeeper'),
		servers => $params{servers} // 1,
		java_opts => $params{java_opts} // $KEEP_CONTAINERS,
	}, $class;

	push @ensembles, $self;
	$self->_run('create', $self->{servers}, $params{tick_time} // 500, $params{observers} // 0);
	chomp($self->{hosts} = $self->_run('hosts'));
	$self->start if $params{start} // 1;
	return $self;
}

=item $zk->start(@i), stop(@i), restart(@i), kill9(@i), pause(@i), resume(@i)

For the servers with these numbers, counted from 1, or for all.  C<start> and C<restart> return
when these servers serve, so start enough of them for a quorum.

A leader that was paused and is resumed may still believe for a moment that it leads, and then
tells clients that sessions have expired which live on elsewhere.  C<wait_until_follower> waits
until it knows that it does not lead.

=cut

sub start { my ($self, @i) = @_; $self->_run('start', @i); return; }
sub stop { my ($self, @i) = @_; $self->_run('stop', @i); return; }
sub kill9 { my ($self, @i) = @_; $self->_run('kill', @i); return; }
sub pause { my ($self, @i) = @_; $self->_run('pause', @i); return; }
sub resume { my ($self, @i) = @_; $self->_run('resume', @i); return; }

sub restart
{
	my ($self, @i) = @_;
	$self->stop(@i);
	$self->start(@i);
	return;
}

=item $zk->hosts

The connect string.

=cut

sub hosts { my ($self) = @_; return $self->{hosts}; }
sub address { my ($self, $i) = @_; return '127.0.0.1:' . $self->setting($i, 'clientPort'); }

sub setting
{
	my ($self, $i, $name) = @_;
	my $text = slurp_file("$self->{directory}/$i/zoo.cfg");
	return $text =~ /^\Q$name\E=(.*)$/m ? $1 : croak "no $name in the configuration of server $i";
}

sub set_setting
{
	my ($self, $i, $name, $value) = @_;
	my $file = "$self->{directory}/$i/zoo.cfg";
	my $text = slurp_file($file);
	$text =~ s/^\Q$name\E=.*$/$name=$value/m or croak "no $name in the configuration of server $i";
	unlink $file;
	append_to_file($file, $text);
	return;
}

=item $zk->address($i)

The address of one server.

=item $zk->setting($i, $name), $zk->set_setting($i, $name, $value)

A line of the server's zoo.cfg.

=item $zk->edit($i, [$path, $what, $value], ...)

Change the data of a znode on server C<$i>, which is not running: see F<test/EditTree.java>.

=item $zk->forget($i)

Remove the data of server C<$i>, which is not running, except for the file F<myid>.

=item $zk->pid($i)

The server's process, or undef.

=item $zk->cmd('wchs', $i)

The answer to a four-letter word, of server 1 if none is named.

=item $zk->mode($i), $zk->leader, $zk->followers

C<leader>, C<follower>, C<observer>, C<standalone> or the empty string; the number of the leader (of
a standalone server too), or undef; the numbers of the followers.

=cut

sub edit
{
	my ($self, $i, @edits) = @_;
	my $jars = $ENV{ZOOKEEPER_JARS} // '/usr/share/java';
	system_or_bail('java', '-Dorg.slf4j.simpleLogger.defaultLogLevel=warn', '-cp',
		join(':', map { "$jars/$_.jar" } qw(slf4j-simple slf4j-api zookeeper-jute zookeeper)),
		"$test_dir/EditTree.java", "$self->{directory}/$i/data", map { @$_ } @edits);
	return;
}

sub forget
{
	my ($self, $i) = @_;
	rmtree("$self->{directory}/$i/data/version-2");
	return;
}

sub pid
{
	my ($self, $i) = @_;
	my ($pid) = (eval { slurp_file("$self->{directory}/$i/pid") } // '') =~ /(\d+)/;
	return $pid && -e "/proc/$pid" ? $pid : undef;
}

sub cmd
{
	my ($self, $word, $i) = @_;
	return $self->_run('cmd', $i // 1, $word);
}

sub mode
{
	my ($self, $i) = @_;
	chomp(my $mode = $self->_run('mode', $i));
	return $mode;
}

sub leader
{
	my ($self) = @_;
	my ($leader) = grep { $self->mode($_) =~ /^(leader|standalone)$/ } 1 .. $self->{servers};
	return $leader;
}

sub followers
{
	my ($self) = @_;
	return grep { $self->mode($_) eq 'follower' } 1 .. $self->{servers};
}

=item $zk->wait_until_serving($seconds)

Until some server leads: after an election that the test caused.

=cut

sub wait_until_serving
{
	my ($self, $seconds) = @_;
	return _wait_for(sub { $self->leader }, $seconds, 'ZooKeeper to serve');
}

=item $zk->wait_until_follower($i, $seconds)

Until server C<$i> follows.

=cut

sub wait_until_follower
{
	my ($self, $i, $seconds) = @_;
	return _wait_for(sub { $self->mode($i) eq 'follower' }, $seconds,
		"ZooKeeper server $i to follow");
}

=back

=head1 ZNODES

Each call may have C<< client => 'name' >>: every name has a ZooKeeper session of its
own, so that a test can play several foreign services.  With C<< server => $address >> it
is for this one of the ensemble.  Errors die with ZooKeeper's name for them, such as
C<NoNodeError>.  C<< user => 'user:password' >> is for the first call of a client, which then
authenticates.

=over

=item $zk->children($path)

A reference to the sorted names; empty if there is no such znode.

=item $zk->tree($path)

A reference to all paths below.

=item $zk->snapshot($path, $i)

The tree of server C<$i> alone: a reference to a hash of all paths from C<$path> on, each with
its stat and C<data>.

=item $zk->exists($path)

The stat as a hash reference (with C<ephemeralOwner>, C<czxid>, ...), or undef.

=item $zk->get($path)

The same, and C<data>.

=item $zk->create($path, data => '', ephemeral => 0, sequence => 0)

Returns the path; makes its parents.  C<< perms => 'rcdwa' >> is what all clients may do
with it (default: everything); then its parents have to be there.

=item $zk->set($path, $data), $zk->delete($path)

=item $zk->allow($path, $perms), $zk->set_acl($path, [$scheme, $id, $perms], ...)

Change what all clients, or these, may do with it; without C<a>, for good.

=item $zk->acl($path)

A reference to its access control list: scheme, id and permissions, as a number, of each
entry.

=item $zk->session_id($client), $zk->close($client)

C<close> ends the session and so deletes its ephemeral znodes.  The id is undef while
the client has lost its session and has no new one yet.

=cut

sub children
{
	my ($self, $path, %opt) = @_;
	my $children = eval { $self->_ask('children', path => $path, %opt) };
	return $children if defined $children;
	return [] if $@ =~ /NoNodeError/;
	croak $@;
}

sub tree { my ($self, $path, %opt) = @_; return $self->_ask('tree', path => $path, %opt); }

sub snapshot
{
	my ($self, $path, $i) = @_;
	return $self->_ask('snapshot', path => $path, server => $self->address($i));
}

sub exists { my ($self, $path, %opt) = @_; return $self->_ask('exists', path => $path, %opt); }
sub get { my ($self, $path, %opt) = @_; return $self->_ask('get', path => $path, %opt); }
sub delete { my ($self, $path, %opt) = @_; return $self->_ask('delete', path => $path, %opt); }

sub create
{
	my ($self, $path, %opt) = @_;
	$_ = $_ ? JSON::PP::true : JSON::PP::false
	  for grep { defined } @opt{ grep { exists $opt{$_} } qw(ephemeral sequence) };
	return $self->_ask('create', path => $path, %opt);
}

sub create_many
{
	my ($self, $path, $n, $prefix) = @_;
	return $self->_ask('create_many', path => $path, data => join ' ', $n, $prefix // ());
}

sub set
{
	my ($self, $path, $data, %opt) = @_;
	return $self->_ask('set', path => $path, data => $data, %opt);
}

sub allow { my ($self, $path, $perms) = @_; return $self->_ask('allow', path => $path, perms => $perms); }
sub acl { my ($self, $path, %opt) = @_; return $self->_ask('acl', path => $path, %opt); }

sub set_acl
{
	my ($self, $path, @entries) = @_;
	my %opt = ref $entries[-1] eq 'HASH' ? %{ pop @entries } : ();
	return $self->_ask('allow', path => $path, acl => \@entries, %opt);
}

sub session_id { my ($self, $client) = @_; return $self->_ask('session_id', client => $client // 'default'); }
sub close { my ($self, $client) = @_; return $self->_ask('close', client => $client // 'default'); }

=item $zk->kill_session($id)

End another client's session as if it had expired.  True if it was alive.  The id is a
number or, as C<zk_status> shows it, a hexadecimal one.

=cut

sub kill_session
{
	my ($self, $id) = @_;
	no warnings 'portable';
	croak 'kill_session needs a session' unless $id;
	$id = hex $id if $id =~ /^0x/;
	return $self->_ask('kill_session', session_id => 0 + $id) ? 1 : 0;
}

=item $zk->has_session($id)

Does the leader know this session?  The id is hexadecimal.  True also if the leader does not answer.

=cut

sub has_session
{
	my ($self, $id) = @_;
	foreach (1 .. 5)
	{
		my $leader = $self->leader // return 1;
		my $dump = $self->cmd('dump', $leader);
		return $dump =~ /^\s*\Q$id\E\b/m if $dump =~ /Session Sets/i;
	}
	return 1;
}

=item $zk->wait_for_children($path, $wanted, $seconds)

Wait until there are C<$wanted> children, or until C<$wanted->($children)> is true;
returns the children.  Dies when the time (default: 60 seconds) is over.

=item $zk->wait_for_gone($path, $seconds)

=item $zk->wait_until(sub { ... }, $what, $seconds)

Wait for any other condition.

=back

=cut

sub wait_until
{
	my ($self, $condition, $what, $seconds) = @_;
	return _wait_for($condition, $seconds, $what);
}

sub wait_for_children
{
	my ($self, $path, $wanted, $seconds) = @_;
	my $children = [];
	my $is_met = ref $wanted ? $wanted : sub { @{ $_[0] } == $wanted };

	_wait_for(sub { $is_met->($children = $self->children($path)) },
		$seconds, sub { "children of $path, which are now: @$children" });
	return $children;
}

sub wait_for_gone
{
	my ($self, $path, $seconds) = @_;
	return _wait_for(sub { !$self->exists($path) }, $seconds, "$path to go");
}

# --- the implementation ---

sub _wait_for
{
	my ($condition, $seconds, $what) = @_;
	my $deadline = time + ($seconds // 60);
	my $is_late = 0;
	until ($condition->())
	{
		# Even if this process stood still until then, it looks once more.
		croak 'timed out waiting for ' . (ref $what ? $what->() : $what) if $is_late;
		$is_late = time > $deadline;
		usleep(20_000);
	}
	return 1;
}

# test/zookeeper COMMAND DIRECTORY ...
sub _run
{
	my ($self, $command, @args) = @_;
	local $ENV{ZOOKEEPER_JAVA_OPTS} = $self->{java_opts};
	open my $output, '-|', "$test_dir/zookeeper", $command, $self->{directory}, @args
	  or croak "could not run test/zookeeper: $!";
	my $text = do { local $/; <$output> } // '';
	CORE::close $output or croak "zookeeper $command @args failed";
	return $text;
}

# One request to the client process, which is started when it is first needed.
sub _ask
{
	my ($self, $op, %args) = @_;

	$self->{client_pid} //= open2($self->{answers}, $self->{requests},
		'/usr/bin/python3', "$test_dir/zkclient.py", $self->{hosts});
	local $SIG{PIPE} = 'IGNORE';
	print { $self->{requests} } $json->encode({ op => $op, session_timeout => $self->_session_timeout, %args }), "\n";

	my $line = readline $self->{answers};
	croak "the ZooKeeper client has died" unless defined $line;
	my $answer = $json->decode($line);
	croak "ZooKeeper $op: $answer->{error} $answer->{message}" if $answer->{error};
	return $answer->{result};
}

# In seconds.  A single server that a test pauses must not expire the test's own session, however
# slow the machine is.  With several servers, the client must leave a silent one soon.
sub _session_timeout { my ($self) = @_; return $self->{servers} == 1 ? 60 : 10; }

# Waiting for children sets $?, which is the exit status of the test here.
END
{
	my $status = $?;
	foreach my $zk (@ensembles)
	{
		if ($zk->{client_pid})
		{
			kill 'KILL', $zk->{client_pid};
			waitpid $zk->{client_pid}, 0;
		}
		eval { $zk->kill9 };
	}
	$? = $status;
}

1;
