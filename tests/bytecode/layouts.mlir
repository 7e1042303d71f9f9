builtin.module {
  func.func @f(%m: memref<4xf32>, %i: index, %c: i1, %t: tensor<4xf32>) -> tensor<2xf32> {
    %v = memref.load %m[%i] : memref<4xf32>
    memref.store %v, %m[%i] : memref<4xf32>
    %a = memref.alloc(%i) {alignment = 64 : i64} : memref<?xf32>
    %s = tensor.extract_slice %t[%i] [2] [1] : tensor<4xf32> to tensor<2xf32>
    cf.cond_br %c, ^bb1(%s : tensor<2xf32>), ^bb1(%s : tensor<2xf32>)
  ^bb1(%r: tensor<2xf32>):
    func.return %r : tensor<2xf32>
  }
}
