// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Gather at a scalar index and the Unsqueeze of the axis that it removed become a Slice.
// WEIGHT a_indices = 2

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x1x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %a_indices = "top.Weight"() : () -> tensor<i32> loc("a_indices")
    %a = "top.Gather"(%x, %a_indices) {axis = 1} : (tensor<2x4x6xf32>, tensor<i32>) -> tensor<2x6xf32> loc("a")
    %y = "top.Unsqueeze"(%a) {axes = [1]} : (tensor<2x6xf32>) -> tensor<2x1x6xf32> loc("y")
    func.return %y : tensor<2x1x6xf32>
  }
}

// CHECK:      %0 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.Slice"(%x, %0, %0, %0) {offset = [0 : i64, 2 : i64, 0 : i64], steps = [1 : i64, 1 : i64, 1 : i64], ends = [2 : i64, 3 : i64, 6 : i64]}{{.*}} -> tensor<2x1x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x1x6xf32>
